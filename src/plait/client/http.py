"""Requests of flows with httpx: the blocking and the asynchronous way. Only this module of the clients imports it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from plait.client.flow import NoAnswerError, NoConnectionError, Request, Response
from plait.client.lines import Lines
from plait.client.settings import Settings
from plait.errors import ServerError

CONNECT_SECONDS = 10.0
CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"  # in the message of OpenSSL


class BlockingHttp:
    def __init__(self, settings: Settings, transport: httpx.BaseTransport | None) -> None:
        self._client = httpx.Client(**settings.arguments(), transport=transport)

    def send(self, request: Request) -> Response:
        body = request.body
        with _as_steps():
            return _response(
                self._client.request(**_arguments(request), content=iter(body) if isinstance(body, Lines) else body)
            )

    def close(self) -> None:
        self._client.close()


class AsyncHttp:
    def __init__(self, settings: Settings, transport: httpx.AsyncBaseTransport | None) -> None:
        self._client = httpx.AsyncClient(**settings.arguments(), transport=transport)

    async def send(self, request: Request) -> Response:
        body = request.body
        with _as_steps():
            return _response(
                await self._client.request(
                    **_arguments(request), content=_in_threads(body) if isinstance(body, Lines) else body
                )
            )

    async def close(self) -> None:
        await self._client.aclose()


async def _in_threads(lines: Lines) -> AsyncIterator[bytes]:
    """The documents are read in another thread: the source may be slow."""
    chunks = iter(lines)
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk


def _arguments(request: Request) -> Mapping[str, Any]:
    return {
        "method": request.method,
        "url": request.path.removeprefix("/"),
        "params": dict(request.query),
        "headers": dict(request.headers),
        "timeout": httpx.Timeout(request.seconds, connect=min(request.seconds, CONNECT_SECONDS)),
    }


def _response(answer: httpx.Response) -> Response:
    return Response(answer.status_code, {name.lower(): value for name, value in answer.headers.items()}, answer.content)


@contextmanager
def _as_steps() -> Iterator[None]:
    try:
        yield
    except (httpx.ReadTimeout, httpx.WriteTimeout) as error:
        raise NoAnswerError from error
    except httpx.ConnectError as error:
        if CERTIFICATE not in str(error):
            raise NoConnectionError(str(error) or type(error).__name__) from error
        raise ServerError(  # another try would see the same certificate
            f"the certificate of the server is not trusted ({error}); if it is your own, give "
            f"verify=ssl.create_default_context(cafile='ca.pem')"
        ) from None
    except (httpx.TransportError, httpx.InvalidURL, httpx.DecodingError, httpx.TooManyRedirects) as error:
        raise NoConnectionError(str(error) or type(error).__name__) from error
