"""The state of the server: health, readiness, metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from plait.serve import answers
from plait.serve.errors import PlainJson
from plait.serve.routes.common import PartsOf, errors, principal_of

_METRICS = {"schema": {"type": "string"}, "example": 'plait_running{queue="search"} 0.0\n'}
router = APIRouter(tags=["server"], responses=errors())


@router.get("/health", response_model=answers.Health, summary="Whether the process runs")
async def health() -> PlainJson:
    return PlainJson({"status": "ok"})


@router.get(
    "/ready",
    response_model=answers.Health,
    summary="Whether requests would be answered now",
    responses={503: {"model": answers.Health, "description": "The server starts or stops."}},
)
async def ready(parts: PartsOf) -> PlainJson:
    is_ready = parts.runtime.ready()
    return PlainJson({"status": "ok" if is_ready else "starting"}, 200 if is_ready else 503)


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": _METRICS}, "description": "Metrics."}},
)
async def metrics(request: Request, parts: PartsOf) -> Response:
    """Needs a key with the scope metrics or admin: metrics name indexes and count their documents."""
    principal_of(request).require("metrics")
    body, media_type = parts.runtime.metrics_text()
    return Response(body, headers={"content-type": media_type})
