"""The page at /, its assets."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from plait.serve.protocol import HttpConfig

STATIC = Path(__file__).parents[1] / "static"


def add_page(app: FastAPI, config: HttpConfig) -> None:
    """Adds the routes of the built page, if it is there and wanted. None of them is in the OpenAPI document."""
    if not config.page or not (STATIC / "index.html").is_file():
        return

    async def page() -> Response:
        return FileResponse(STATIC / "index.html")

    app.add_api_route("/", page, methods=["GET"], include_in_schema=False)
    app.mount("/assets", StaticFiles(directory=STATIC), name="assets")
