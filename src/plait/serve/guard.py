"""Requests that a browser must not make for somebody else: Host and Origin are checked, CORS is off unless configured,
and answers forbid what pages do not need.

A page of another site can send requests to a server on loopback, and by DNS rebinding it can read the answers: its own
name then resolves to 127.0.0.1. Such a request has that name in its Host header, and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plait.errors import ConfigError
from plait.serve.errors import ApiError, error_response, request_id_of
from plait.serve.protocol import HttpConfig

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")

# The page has no inline script and no inline style, and speaks with this server alone.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
DATA_POLICY = "default-src 'none'; frame-ancestors 'none'"
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_ALLOWED_HEADERS = "authorization, content-type, idempotency-key, prefer, x-api-key, x-request-id"
_EXPOSED_HEADERS = "location, retry-after, x-request-id"
_ALLOWED_METHODS = "GET, POST, PATCH, DELETE"


def host_name(header: str) -> str | None:
    """The name or address in a Host header, in lower case and without port; None if it is malformed."""
    match = _HOST.fullmatch(header)
    return None if match is None else match["name"].strip("[]").lower().rstrip(".")


class Guard:
    """ASGI middleware that checks Host and Origin, answers preflight requests and adds the headers."""

    def __init__(self, app: ASGIApp, config: HttpConfig) -> None:
        self._app = app
        self._hosts = _host_names(config)
        self._origins = frozenset(_checked_origins(config.allowed_origins))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        sends = _WithHeaders(send, scope["path"], origin if origin in self._origins else None)
        try:
            self._check(scope, headers)
        except ApiError as error:
            await error_response(error, request_id_of(scope))(scope, receive, sends)
            return
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await sends.preflight()
            return
        await self._app(scope, receive, sends)

    def _check(self, scope: Scope, headers: Headers) -> None:
        if "transfer-encoding" in headers and "content-length" in headers:
            # A proxy that reads such a body by its length sees another request where this server sees its end.
            message = "a body has a length or is sent in chunks, not both"
            raise ApiError(400, "bad_request", message, {"connection": "close"})
        given = headers.getlist("host")
        name = host_name(given[0]) if len(given) == 1 else None
        if name is None or name not in self._hosts:
            raise ApiError(
                421,
                "wrong_host",
                "this server does not answer to that Host; add its name to allowed_hosts of the server",
            )
        for origin in headers.getlist("origin"):
            if origin not in self._origins and not _is_same_origin(origin, given[0], scope["scheme"]):
                raise ApiError(
                    403,
                    "wrong_origin",
                    "pages of that origin may not use this server; see allowed_origins of the server",
                )
        if headers.get("sec-fetch-site") == "cross-site" and "origin" not in headers and scope["method"] != "GET":
            raise ApiError(403, "wrong_origin", "pages of other sites may not use this server")


def _is_same_origin(origin: str, host: str, scheme: str) -> bool:
    """A proxy that ends TLS makes the scheme of a page https and that of the request http."""
    return origin in (f"{scheme}://{host}", f"https://{host}")


def _host_names(config: HttpConfig) -> frozenset[str]:
    names = {*LOOPBACK, *(name.lower().strip("[]").rstrip(".") for name in config.allowed_hosts)}
    if config.host not in ("0.0.0.0", "::", ""):
        names.add(config.host.lower().strip("[]"))
    return frozenset(names)


def _checked_origins(origins: Sequence[str]) -> Iterable[str]:
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}":
            raise ConfigError(f"an allowed origin is a scheme and a host, such as https://example.org; got {origin!r}")
        yield origin


class _WithHeaders:
    """`send` that adds the security headers, and those of CORS for an origin that is allowed."""

    def __init__(self, send: Send, path: str, origin: str | None) -> None:
        self._send, self._path, self._origin = send, path, origin

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            is_page = headers.get("content-type", "").startswith(("text/html", "text/css", "text/javascript"))
            headers.setdefault("content-security-policy", PAGE_POLICY if is_page else DATA_POLICY)
            if not self._path.startswith("/assets/"):
                headers.setdefault("cache-control", "no-store")
            if self._origin is not None:
                self._add_cors(headers)
        await self._send(message)

    def _add_cors(self, headers: MutableHeaders) -> None:
        assert self._origin is not None
        headers["access-control-allow-origin"] = self._origin
        headers["access-control-expose-headers"] = _EXPOSED_HEADERS
        headers["cross-origin-resource-policy"] = "cross-origin"
        headers.add_vary_header("origin")

    async def preflight(self) -> None:
        headers = MutableHeaders()
        if self._origin is not None:
            headers["access-control-allow-methods"] = _ALLOWED_METHODS
            headers["access-control-allow-headers"] = _ALLOWED_HEADERS
            headers["access-control-max-age"] = "600"
        await self({"type": "http.response.start", "status": 204, "headers": headers.raw})
        await self._send({"type": "http.response.body", "body": b""})
