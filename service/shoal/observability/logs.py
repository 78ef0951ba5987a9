"""Structured logs on standard error: event, error code, topic, partition, offset, counts; no attribute value.

No line holds a traceback or the text of an exception from outside Shoal, because both can quote attribute values.
`error_code` and `raise_location` say what may be logged of an exception. Lines of the client libraries are logged from
level WARNING on, reduced by `client_lines`. `install_exception_hooks` and
`install_loop_exception_handler` apply the same rule to exceptions that no code catches.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Literal

import structlog
from structlog.types import EventDict, Processor

from shoal.errors import ShoalError
from shoal.observability.client_lines import client_line, client_template, is_routine

__all__ = [
    "error_code",
    "escape_control_characters",
    "install_exception_hooks",
    "install_loop_exception_handler",
    "join_logs",
    "logger",
    "raise_location",
    "set_up_logs",
]

REPEAT_INTERVAL_S = 30.0
"""How long a repeated line of a client library is left out (s)."""

_CLIENT_LOGGERS = ("aiokafka", "aiohttp", "asyncio", "numba", "kafka")


def set_up_logs(style: Literal["json", "text"], level: Literal["debug", "info", "warning", "error"] = "info") -> None:
    """Send every log line of the process from a level on to standard error in one style.

    Lines of client libraries are written from level WARNING on, whatever the level is.
    """
    shared: list[Processor] = [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Processor = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_print_no_exception)
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_ClientFilter())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_reduce_client_line, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _drop_traceback, renderer],
        )
    )
    logging.raiseExceptions = False  # otherwise a line that cannot be written is printed with its arguments
    root = logging.getLogger()
    root.handlers = [handler]
    number = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(number)
    for name in _CLIENT_LOGGERS:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))


def join_logs() -> None:
    """Send the log lines to the logging of the surrounding app; do nothing after `set_up_logs`."""
    if not structlog.is_configured():
        structlog.configure(
            processors=[structlog.processors.KeyValueRenderer(key_order=["event"])],
            logger_factory=structlog.stdlib.LoggerFactory(),
            wrapper_class=structlog.stdlib.BoundLogger,
            cache_logger_on_first_use=False,
        )


class _ClientFilter(logging.Filter):
    """Reduces lines of client libraries, and leaves out those that say nothing new.

    Without a broker they log the same line at every attempt, and at every rebalance a warning.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write this line; lines of Shoal itself are always written."""
        # The formatter no longer has the arguments.
        record.reduced = client_line(record)
        if not record.name.startswith(_CLIENT_LOGGERS):
            return True
        if is_routine(record):
            return False
        line = (record.name, client_template(record))
        is_due = time.monotonic() - self._last.get(line, -REPEAT_INTERVAL_S) >= REPEAT_INTERVAL_S
        if is_due:
            self._last[line] = time.monotonic()
        return is_due


def logger(package: str) -> structlog.stdlib.BoundLogger:
    """Return the logger ``shoal.PACKAGE``."""
    bound: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(f"shoal.{package}")
    return bound


def error_code(error: BaseException) -> str:
    """Return the code of a Shoal error, or the class name of another exception."""
    return error.code if isinstance(error, ShoalError) else type(error).__name__


def raise_location(error: BaseException) -> str:
    """Return class, file and line of an unexpected exception, without its text."""
    frame = traceback.extract_tb(error.__traceback__)[-1:]
    return type(error).__name__ + (f" at {Path(frame[0].filename).name}:{frame[0].lineno}" if frame else "")


def escape_control_characters(text: str) -> str:
    """Escape control and direction characters, which could change what a terminal shows; names come from files."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)


def install_exception_hooks() -> None:
    """Log class and location of uncaught exceptions, in all threads, instead of a traceback."""

    def log_error(error: BaseException | None) -> None:
        if error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
            logger("process").error("unexpected", code=error_code(error), location=raise_location(error))

    sys.excepthook = lambda _, error, __: log_error(error)
    threading.excepthook = lambda args: log_error(args.exc_value)
    sys.unraisablehook = lambda args: log_error(args.exc_value)


def install_loop_exception_handler(loop: asyncio.AbstractEventLoop) -> None:
    """Do the same for the callbacks and tasks of an event loop whose exceptions no code retrieves."""

    def log_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        fields = {} if error is None else {"code": error_code(error), "location": raise_location(error)}
        logger("process").error("unhandled error in an event loop", **fields)

    loop.set_exception_handler(log_error)


def _drop_traceback(_: object, __: str, event: EventDict) -> EventDict:
    event.pop("exc_info", None)
    event.pop("exception", None)
    return event


def _print_no_exception(_: object, __: object) -> None:
    """Print nothing of an exception."""


def _reduce_client_line(_: object, __: str, event: EventDict) -> EventDict:
    """Reduce a client's line to what may be logged of it, and its logger: the arguments may hold attribute values."""
    record = event.get("_record")
    if isinstance(record, logging.LogRecord):
        event["event"] = getattr(record, "reduced", "message")
        event["client"] = record.name
    return event
