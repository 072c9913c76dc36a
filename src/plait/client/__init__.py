"""Clients of `plait serve`: `Client` and `AsyncClient` have the calls of `Index` and `AsyncIndex`, over HTTP.

A call is a flow (`calls`): it yields requests and waits, and is given answers. `client` runs flows with blocking HTTP,
`async_client` with asyncio; nothing else of a call exists twice. Needs `pip install 'plait[client]'`.
"""
