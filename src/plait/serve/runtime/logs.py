"""Logs: one JSON object on each line, or plain lines on a terminal. They name requests by id, and hold no texts of
queries or documents unless the configuration asks for queries."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from plait.serve.config import Telemetry

LOGGER = logging.getLogger("plait.serve")
FIELDS = "fields"  # attribute of a record: what is written beside the message


def configure(telemetry: Telemetry, process: str) -> None:
    """Sends the log of this process to stderr. Libraries log warnings and errors only."""
    as_json = telemetry.log_format == "json" or (telemetry.log_format == "auto" and not sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(process) if as_json else PlainLines(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    LOGGER.setLevel(telemetry.log_level.upper())
    # Lines name neither the code nor the thread that wrote them; to find both takes as long as the rest of a line.
    logging._srcfile = None  # the documentation of logging names this switch
    logging.logThreads = logging.logMultiprocessing = logging.logProcesses = False
    logging.logAsyncioTasks = False  # type: ignore[attr-defined]


def log(level: int, message: str, **fields: Any) -> None:
    """Logs a message with fields; None leaves a field out."""
    LOGGER.log(level, message, extra={FIELDS: {name: value for name, value in fields.items() if value is not None}})


_encode = json.JSONEncoder(default=str).encode  # made once: every request has a line


class JsonLines(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """One line; a line break or a control character of a value is escaped by JSON."""
        line: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "process": self._process,
            "message": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        if record.name != LOGGER.name:
            line["logger"] = record.name
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _encode(line)


class PlainLines(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Time, process, message and fields; values are escaped as in JSON where they are not plain words."""
        fields = " ".join(f"{name}={_plain(value)}" for name, value in getattr(record, FIELDS, {}).items())
        begin = f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {self._process:<9}"
        line = f"{begin} {record.getMessage()} {fields}".rstrip()
        return line if not record.exc_info else f"{line}\n{self.formatException(record.exc_info)}"


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if text.isprintable() and " " not in text else json.dumps(text)
