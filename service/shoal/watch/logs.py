"""Structured logs on standard error: an event, a code, coordinates and counts; never a value, never a traceback.

Tracebacks of foreign exceptions can hold record values in their messages. `code_of` is what may be logged of an
exception; clients' own loggers pass at WARNING and above, with their exceptions cut off.
"""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog
from structlog.types import EventDict, Processor

from shoal.errors import ShoalError

__all__ = ["code_of", "logger", "set_up_logs"]

_QUIET = ("aiokafka", "aiohttp", "asyncio", "numba", "kafka")


def set_up_logs(style: Literal["json", "text"]) -> None:
    """Send every log line of the process to standard error in one style."""
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Processor = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_no_exception)
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_bare_foreign, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _no_traceback, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def logger(room: str) -> structlog.stdlib.BoundLogger:
    """Logger of a room; its lines say where they come from."""
    bound: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(f"shoal.{room}")
    return bound


def code_of(error: BaseException) -> str:
    """What may be said of an exception in a log: its code, or the name of its class."""
    return error.code if isinstance(error, ShoalError) else type(error).__name__


def _no_traceback(_: object, __: str, event: EventDict) -> EventDict:
    event.pop("exc_info", None)
    event.pop("exception", None)
    return event


def _no_exception(_: object, __: object) -> None:
    """Print nothing of an exception."""


def _bare_foreign(_: object, __: str, event: EventDict) -> EventDict:
    """A client's log line: its arguments may hold anything, so only the template and its place remain."""
    record = event.get("_record")
    if isinstance(record, logging.LogRecord):
        event["event"] = record.msg if isinstance(record.msg, str) else "message"
        event["client"] = record.name
    return event
