"""Structured logs on standard error: an event, a code, coordinates and counts; never a value, never a traceback.

Tracebacks of foreign exceptions can hold record values in their messages. `code_of` and `place_of` are what may be
told of an exception; clients' own loggers pass at WARNING and above, with their exceptions cut off. What nobody
catches, in any thread or task, ends in `guard`.
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

QUIET_S = 30.0

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
    handler.addFilter(_Repeats())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_bare_foreign, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _no_traceback, renderer],
        )
    )
    logging.raiseExceptions = False  # or a line that cannot be written is printed with all that it holds
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def join_logs() -> None:
    """Send the log into that of a process that somebody else has set up; nothing, if `set_up_logs` was called."""
    if not structlog.is_configured():
        structlog.configure(
            processors=[structlog.processors.KeyValueRenderer(key_order=["event"])],
            logger_factory=structlog.stdlib.LoggerFactory(),
            wrapper_class=structlog.stdlib.BoundLogger,
            cache_logger_on_first_use=False,
        )


class _Repeats(logging.Filter):
    """Lets a client's line pass once in a while: one that waits for a lost broker says the same for ever."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether this line is to be written; the lines of the service itself always are."""
        if not record.name.startswith(_QUIET):
            return True
        line = (record.name, _bare(record))
        is_due = time.monotonic() - self._last.get(line, -QUIET_S) >= QUIET_S
        if is_due:
            self._last[line] = time.monotonic()
        return is_due


def logger(room: str) -> structlog.stdlib.BoundLogger:
    """Logger of a room; its lines say where they come from."""
    bound: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(f"shoal.{room}")
    return bound


def error_code(error: BaseException) -> str:
    """What may be said of an exception in a log: its code, or the name of its class."""
    return error.code if isinstance(error, ShoalError) else type(error).__name__


def raise_location(error: BaseException) -> str:
    """Class of an exception and where it was raised, for one that nobody foresaw; never its text."""
    frame = traceback.extract_tb(error.__traceback__)[-1:]
    return type(error).__name__ + (f" at {Path(frame[0].filename).name}:{frame[0].lineno}" if frame else "")


def escape_control_characters(text: str) -> str:
    """Spell out what would command a terminal or turn its writing round: names come from files."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)


def install_exception_hooks() -> None:
    """Let the interpreter tell no more than a place of what nobody catches."""

    def tell(error: BaseException | None) -> None:
        if error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
            logger("process").error("unexpected", code=error_code(error), place=raise_location(error))

    sys.excepthook = lambda _, error, __: tell(error)
    threading.excepthook = lambda lost: tell(lost.exc_value)
    sys.unraisablehook = lambda lost: tell(lost.exc_value)


def install_loop_exception_handler(loop: asyncio.AbstractEventLoop) -> None:
    """Do the same for what is lost in a loop: callbacks, tasks that nobody asks."""

    def tell(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        told = {} if error is None else {"code": error_code(error), "place": raise_location(error)}
        logger("process").error("lost in the background", **told)

    loop.set_exception_handler(tell)


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
        event["event"] = _bare(record)
        event["client"] = record.name
    return event


def _bare(record: logging.LogRecord) -> str:
    # Asyncio writes exceptions of lost tasks into the template, from its second line on.
    return record.msg.partition("\n")[0] if isinstance(record.msg, str) else "message"
