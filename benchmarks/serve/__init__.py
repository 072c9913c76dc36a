"""The server under load: throughput against the library, overload, and other servers beside it."""
