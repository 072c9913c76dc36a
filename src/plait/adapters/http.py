"""`JsonClient`: JSON over HTTP with the standard library. Connections are kept alive and reused; busy servers are tried
again; answers are checked before they are believed. An API key is sent, never shown.

Redirects are not followed, so that a key goes to no other server than the one that was named. Proxies are not used.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import os
import random
import socket
import ssl
import time
import weakref
from typing import Any
from urllib.parse import urlsplit

from plait.checks import check_count, check_type, parse_json, shown
from plait.deadline import check_deadline, current_deadline
from plait.errors import ConfigError, ModelError
from plait.locks import ForkSafeLock
from plait.version import __version__

RETRIED = {408, 429, 500, 502, 503, 504}
FIRST_WAIT, MAX_WAIT = 0.5, 60.0  # seconds before another try; each wait is twice the one before
MAX_ANSWER = 1 << 29  # bytes
MAX_QUOTED = 300  # characters of a server's message in an error
READ_BYTES = 1 << 16
HEADERS = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": f"plait/{__version__}"}

_sleep = time.sleep  # replaced by tests


class JsonClient:
    """One server, by its base URL. Threads may share it: each request has a connection to itself."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        api_key_env: str | None = None,
        timeout: float = 60.0,
        retries: int = 4,
    ) -> None:
        check_type("url", url, str, "the address of an endpoint, such as 'http://127.0.0.1:8080'", ConfigError)
        check_count("retries", retries, least=0)
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= 86400:
            raise ConfigError(f"timeout is {shown(timeout)}; it must be a number of seconds above 0")
        parts = urlsplit(url.rstrip("/"))
        if parts.username or parts.password:
            raise ConfigError("the URL of the endpoint contains a user name or a password; pass api_key instead")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ConfigError(f"{shown(url)} is no URL of an endpoint; it must look like http://127.0.0.1:8080")
        self.url, self._path = parts.geturl(), parts.path
        self._is_https, self._host = parts.scheme == "https", parts.hostname
        try:
            self._port = parts.port
        except ValueError:
            raise ConfigError(f"{shown(url)} has a port that is no number from 0 to 65535") from None
        self._timeout, self._retries = float(timeout), retries
        self._api_key = _find_key(api_key, api_key_env)
        self._idle: list[http.client.HTTPConnection] = []  # never another list: the finalizer closes what is in it
        self._idle_lock, self._process = ForkSafeLock(), os.getpid()
        weakref.finalize(self, _close_all, self._idle)

    def __repr__(self) -> str:
        return f"JsonClient({self.url!r})"

    def get(self, path: str) -> Any:
        return self._request("GET", path, None)

    def post(self, path: str, body: object) -> Any:
        return self._request("POST", path, json.dumps(body, ensure_ascii=False).encode())

    def put(self, path: str, body: object) -> Any:
        return self._request("PUT", path, json.dumps(body, ensure_ascii=False).encode())

    def delete(self, path: str) -> Any:
        return self._request("DELETE", path, None)

    def close(self) -> None:
        """Closes idle connections; later requests open new ones."""
        with self._idle_lock:
            _close_all(self._idle)

    # -- requests

    def _request(self, method: str, path: str, body: bytes | None) -> Any:
        """The JSON answer of a request; ModelError if there is none, after the retries that make sense."""
        wait = FIRST_WAIT
        for tries_left in range(self._retries, -1, -1):
            check_deadline()
            try:
                status, headers, answer = self._exchange(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                check_deadline()  # a search that is out of time says so itself
                if tries_left == 0 or isinstance(error, ssl.SSLCertVerificationError | socket.gaierror):
                    raise ModelError(self._failure(path, error)) from None
                _pause(wait * random.uniform(0.5, 1))
            else:
                if status not in RETRIED or tries_left == 0:
                    return self._parsed(path, status, headers, answer)
                _pause(self._wait_after(path, headers, wait))
            wait = min(2 * wait, MAX_WAIT)
        raise AssertionError("the last try returns or raises")

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Sends one request and reads the whole answer. A kept connection that the server has closed is replaced."""
        connection, is_reused = self._connection()
        headers = HEADERS | ({"Authorization": f"Bearer {self._api_key}"} if self._api_key else {})
        end = time.monotonic() + self._timeout
        try:
            self._limit_time(connection, end)
            try:
                connection.request(method, self._path + path, body, headers)
                response = connection.getresponse()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                if not is_reused:
                    raise
                connection.close()
                connection.request(method, self._path + path, body, headers)
                response = connection.getresponse()
            answer = self._read(connection, response, path, end)
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._keep(connection)
        return response.status, response.headers, answer

    def _read(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse, path: str, end: float
    ) -> bytes:
        """The body, within the time and size limits: a server may send it one byte at a time, or never stop."""
        parts, n_bytes = [], 0
        while part := response.read1(READ_BYTES):
            parts.append(part)
            n_bytes += len(part)
            if n_bytes > MAX_ANSWER:
                raise ModelError(
                    f"{self.url}{path} sent more than {MAX_ANSWER:,} bytes; ask for fewer texts at once (batch_size)"
                )
            self._limit_time(connection, end)
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        response.close()  # the connection is free for the next request
        return b"".join(parts)

    def _limit_time(self, connection: http.client.HTTPConnection, end: float) -> None:
        """Sets the time that the next step may take: what is left of the timeout and of the search's deadline."""
        check_deadline()
        deadline = current_deadline()
        left = min(end - time.monotonic(), float("inf") if deadline is None else deadline.remaining())
        if left <= 0:
            raise TimeoutError("timed out")
        connection.timeout = left
        if connection.sock is not None:
            connection.sock.settimeout(left)

    # -- connections

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        """An idle connection, or a new one; and whether it was idle."""
        with self._idle_lock:
            if self._process != os.getpid():  # a fork: the sockets belong to the parent
                _close_all(self._idle)
                self._process = os.getpid()
            if self._idle:
                return self._idle.pop(), True
        kind = http.client.HTTPSConnection if self._is_https else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=self._timeout), False

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._idle_lock:
            self._idle.append(connection)

    # -- answers

    def _parsed(self, path: str, status: int, headers: http.client.HTTPMessage, answer: bytes) -> Any:
        if not 200 <= status < 300:
            raise ModelError(self._refusal(path, status, headers, answer))
        try:
            return parse_json(answer)
        except ValueError:
            what = "HTML" if answer.lstrip()[:1] == b"<" else "no JSON"
            raise ModelError(
                f"{self.url}{path} answered with {what}: {self._quoted(answer)}; is this the address of the model's "
                f"API, and not of a web page or a proxy?"
            ) from None

    def _refusal(self, path: str, status: int, headers: http.client.HTTPMessage, answer: bytes) -> str:
        start = f"{self.url}{path} answered with status {status}"
        message = self._quoted(answer)
        if status in (401, 403):
            key = "the API key was refused" if self._api_key else "no API key was given"
            return f"{start}: {key}; pass api_key, or api_key_env with the name of an environment variable ({message})"
        if status in (404, 405):
            return f"{start}: the server has no such path; check the URL and which API it has ({message})"
        if status == 413:
            return f"{start}: the request is too large; choose a smaller batch_size or passage_tokens ({message})"
        if 300 <= status < 400:
            return f"{start}, a redirect to {self._quoted(headers.get('Location', '').encode())}; name that URL itself"
        if status in RETRIED:
            return f"{start} after {self._retries + 1} tries: {message}; try again later, or raise retries"
        return f"{start}: {message}"

    def _failure(self, path: str, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"{self.url}{path} did not answer within {self._timeout:g} s; is it overloaded? Raise timeout"
        text = self._quoted(str(error).encode()) or type(error).__name__
        return f"{self.url}{path} cannot be reached: {text}; check that the server runs and the URL is right"

    def _wait_after(self, path: str, headers: http.client.HTTPMessage, wait: float) -> float:
        """Seconds until the next try: what the server asks for, else `wait` with some jitter."""
        asked = retry_after(headers.get("Retry-After"))
        if asked is None:
            return wait * random.uniform(0.5, 1)
        if asked > MAX_WAIT:
            raise ModelError(
                f"{self.url}{path} is over its limit and asks to wait for {asked:,.0f} s, more than {MAX_WAIT:g} s; "
                f"try again then"
            )
        return asked

    def _quoted(self, answer: bytes) -> str:
        """The beginning of a server's message, on one line, without the API key."""
        text = " ".join(answer[: 16 * MAX_QUOTED].decode("utf-8", "replace").split())
        if self._api_key:
            text = text.replace(self._api_key, "***")
        text = "".join(character if character.isprintable() else "?" for character in text)
        return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}..."


def retry_after(value: str | None) -> float | None:
    """The seconds of a Retry-After header, which has a number or a date; None if it has neither."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return max(seconds, 0.0) if seconds == seconds else None


def _close_all(connections: list[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()


def _pause(seconds: float) -> None:
    """Waits, but not beyond the deadline of the search that runs in this thread."""
    deadline = current_deadline()
    _sleep(seconds if deadline is None else min(seconds, deadline.remaining()))
    check_deadline()


def _find_key(api_key: str | None, variable: str | None) -> str | None:
    if api_key is not None and variable is not None:
        raise ConfigError("give one of api_key and api_key_env")
    if variable is not None:
        api_key = os.environ.get(variable)
        if not api_key:
            raise ConfigError(f"the environment variable {variable} is not set; it should hold the API key")
    if api_key is not None and (not isinstance(api_key, str) or not api_key.isascii() or not api_key.isprintable()):
        raise ConfigError("the API key is no printable ASCII text; check for a line break at its end")
    return api_key
