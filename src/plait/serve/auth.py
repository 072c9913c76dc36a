"""Who a request is from: `Authenticator` finds the key of a request before its body is read, and a `Principal` says
what the holder of the key may do."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from plait.errors import ConfigError
from plait.serve.errors import ApiError, error_response, request_id_of
from plait.serve.keys import Key, KeyFile, read_keys
from plait.serve.protocol import CURRENT_OWNER, UnknownIndexError

RELOAD_SECONDS = 1.0  # how soon an added or removed key counts
PUBLIC_PATHS = frozenset({"/", "/health", "/ready", "/openapi.json", "/docs", "/favicon.ico"})
PUBLIC_FOLDERS = ("/assets/",)
_INCLUDED = {"write": ("read",), "admin": ("read", "write", "metrics")}
_NO_SECRET = "0" * 64  # signs cursors of a server without keys, where everybody sees every document

log = logging.getLogger("plait.serve")


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """What a request may do."""

    id: str  # of its key; empty without one
    scopes: frozenset[str]
    indexes: frozenset[str] | None = None  # None: all
    filter: str | None = None

    @classmethod
    def of(cls, key: Key) -> Principal:
        scopes = {*key.scopes, *(scope for given in key.scopes for scope in _INCLUDED.get(given, ()))}
        indexes = None if key.indexes is None else frozenset(key.indexes)
        return cls(id=key.id, scopes=frozenset(scopes), indexes=indexes, filter=key.filter)

    def require(self, scope: str) -> None:
        """Raises ApiError 403 unless the key has the scope."""
        if scope not in self.scopes:
            raise ApiError(403, "missing_scope", f"this key does not have the scope {scope}")

    def may_see(self, index: str) -> bool:
        return self.indexes is None or index in self.indexes

    def check_index(self, index: str) -> None:
        """Raises the error of an index that does not exist for one that the key may not see."""
        if not self.may_see(index):
            raise unknown_index(index)


# On loopback without keys: whoever has an account on this machine.
ANYBODY = Principal(id="", scopes=frozenset({"read", "write", "admin", "metrics"}))


def unknown_index(name: str) -> UnknownIndexError:
    """One message for an index that does not exist and one that a key may not see."""
    return UnknownIndexError(f"there is no index {name[:64]!r}; GET /v1/indexes lists them")


class Authenticator:
    """Finds the principal of a request. The file of keys is read again when it changes."""

    def __init__(self, keys_file: Path | None) -> None:
        self._path = keys_file
        self._lock = threading.Lock()
        self._keys: KeyFile | None = None if keys_file is None else read_keys(keys_file)
        self._stamp = self._stamp_now()
        self._checked = time.monotonic()

    @property
    def has_keys(self) -> bool:
        return self._path is not None

    @property
    def secret(self) -> str:
        return _NO_SECRET if self._keys is None else self._keys.secret

    def principal(self, headers: Headers) -> Principal:
        """Raises ApiError 401 without a valid key, if keys are needed."""
        if self._path is None:
            return ANYBODY
        self._reload_if_changed()
        given = _given_keys(headers)
        if len(given) != 1:
            raise _unauthorized(
                "send one API key, as Authorization: Bearer KEY" if given else "this server needs an API key"
            )
        key = None if self._keys is None else self._keys.find(given[0])
        if key is None:
            raise _unauthorized("the API key is wrong, was removed, or has expired")
        return Principal.of(key)

    def _reload_if_changed(self) -> None:
        if time.monotonic() - self._checked < RELOAD_SECONDS:
            return
        with self._lock:
            self._checked = time.monotonic()
            stamp = self._stamp_now()
            if stamp == self._stamp:
                return
            assert self._path is not None
            try:
                self._keys = read_keys(self._path)
                self._stamp = stamp
            except ConfigError as error:
                # Whoever broke the file may have wanted to remove a key: no key counts until it is whole again.
                log.error("no key is accepted: %s", error)  # noqa: TRY400 -- the message says it all
                self._keys = None

    def _stamp_now(self) -> tuple[int, int, int] | None:
        if self._path is None:
            return None
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _given_keys(headers: Headers) -> list[str]:
    given = list(headers.getlist("x-api-key"))
    for value in headers.getlist("authorization"):
        scheme, _, key = value.partition(" ")
        given.append(key.strip() if scheme.lower() == "bearer" else "")
    return given


def _unauthorized(message: str) -> ApiError:
    return ApiError(401, "unauthorized", message, {"www-authenticate": 'Bearer realm="plait"'})


class Authenticate:
    """ASGI middleware: refuses a request without a valid key before its body is read."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self._app, self._authenticator = app, authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _is_public(scope):
            try:
                principal = self._authenticator.principal(Headers(scope=scope))
            except ApiError as error:
                await error_response(error, request_id_of(scope))(scope, receive, send)
                return
            scope["state"]["principal"] = principal
            CURRENT_OWNER.set(principal.id)  # of the task of this request
        await self._app(scope, receive, send)


def _is_public(scope: Scope) -> bool:
    return scope["method"] in ("GET", "HEAD") and (
        scope["path"] in PUBLIC_PATHS or scope["path"].startswith(PUBLIC_FOLDERS)
    )
