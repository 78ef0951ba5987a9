"""Structured logs on standard error: event, error code, topic, partition, offset, counts; no attribute value.

No line holds a traceback or the text of an exception from outside Shoal, because both can quote attribute values. The
hooks apply this to exceptions that no code catches.

Of a line of a client library (from level WARNING on), its template is logged, with whole numbers and classes of
exceptions. Every other argument is left out. A node id, a port or a count is a whole number, and an attribute value
never is one there: clients handle messages as bytes.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import re
import resource
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import structlog
from structlog.types import EventDict, Processor

from shoal.errors import ShoalError

REPEAT_INTERVAL_S = 30.0
"""How long a repeated line of a client library is left out (s)."""

_CLIENT_LOGGERS = ("aiokafka", "aiohttp", "asyncio", "numba", "kafka")

_PLACEHOLDER = r"%(?:\(\w+\))?[-#0 +]*(?:\d+|\*)?(?:\.(?:\d+|\*))?[diouxXeEfFgGcrsa]"
_JOINED = rf"{_PLACEHOLDER}(?::{_PLACEHOLDER})*"
_ONE = re.compile(rf"%%|{_PLACEHOLDER}")
_GROUPS = re.compile("|".join(("%%", rf"\({_JOINED}\)", rf"\[{_JOINED}\]", f"'{_JOINED}'", f'"{_JOINED}"', _JOINED)))
"""Placeholders of a logging template, with the quotation marks or brackets around them."""
_ROUTINE = ("Heartbeat failed for group %s because it is rebalancing",)
"""Templates of warnings that every rebalance writes."""


_LOOP_MESSAGES = (
    "Task exception was never retrieved",
    "Future exception was never retrieved",
    "Task was destroyed but it is pending",
    "Exception in callback",
    "Unclosed",
    "Fatal",
)
"""How messages of asyncio and of the client begin; what follows may quote arguments."""

REPORT = "the worker goes on; report it with code and location if it recurs"


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


def is_out_of_descriptors(error: BaseException | None) -> bool:
    """Return whether an error says that the process, or the machine, may open no more files and connections."""
    return isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}


def descriptors_remedy() -> str:
    """Return what to do about it, with the limit of this process."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return f"raise the limit of open files, which is {limit} (LimitNOFILE of a systemd unit, ulimit -n of a shell)"


def install_loop_exception_handler(loop: asyncio.AbstractEventLoop) -> None:
    """Do the same for the callbacks and tasks of an event loop whose exceptions no code retrieves."""
    told_s = -math.inf

    def log_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if is_out_of_descriptors(error):
            nonlocal told_s  # asyncio tries to accept a connection every second
            if time.monotonic() - told_s >= REPEAT_INTERVAL_S:
                told_s = time.monotonic()
                logger("process").error("no file descriptor is left", remedy=descriptors_remedy())
            return
        fields = {} if error is None else {"code": error_code(error), "location": raise_location(error)}
        during = next((words for words in _LOOP_MESSAGES if str(context.get("message")).startswith(words)), "")
        logger("process").error("unhandled error in an event loop", **fields, during=during, remedy=REPORT)

    loop.set_exception_handler(log_error)


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
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty() and not os.environ.get("NO_COLOR"), exception_formatter=lambda _, __: None
        )
    )
    _configure([*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter])
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
        _configure([structlog.processors.KeyValueRenderer(key_order=["event"])])


def _configure(processors: list[Processor]) -> None:
    structlog.configure(
        processors=processors,
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


class _ClientFilter(logging.Filter):
    """Reduces lines of client libraries, and leaves out those that every attempt or rebalance repeats."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write this line; lines of Shoal itself are always written."""
        # The formatter no longer has the arguments.
        record.reduced = _line(record, has_arguments=True)
        if not record.name.startswith(_CLIENT_LOGGERS):
            return True
        if record.msg in _ROUTINE:
            return False
        line = (record.name, _line(record, has_arguments=False))  # lines that differ in arguments only are one
        is_due = time.monotonic() - self._last.get(line, -REPEAT_INTERVAL_S) >= REPEAT_INTERVAL_S
        if is_due:
            self._last[line] = time.monotonic()
        return is_due


def _drop_traceback(_: object, __: str, event: EventDict) -> EventDict:
    event.pop("exc_info", None)
    event.pop("exception", None)
    return event


def _reduce_client_line(_: object, __: str, event: EventDict) -> EventDict:
    """Reduce a client's line to what may be logged of it, and its logger: the arguments may hold attribute values."""
    record = event.get("_record")
    if isinstance(record, logging.LogRecord):
        event["event"] = getattr(record, "reduced", "message")
        event["client"] = record.name
    return event


def _line(record: logging.LogRecord, *, has_arguments: bool) -> str:
    """Return the line of a client with the arguments that may be logged, without the placeholders of the others."""
    if not isinstance(record.msg, str):
        return "message"
    # Asyncio appends the exception of a task to the template, from its second line on.
    template = record.msg.partition("\n")[0]
    placeholders = [found for found in _ONE.findall(record.msg) if found != "%%"]
    arguments = record.args if has_arguments and isinstance(record.args, tuple) else ()
    # A template that takes its arguments in another way gets none.
    shown = iter(map(_shown, arguments) if len(placeholders) == len(arguments) else [""] * len(placeholders))
    words = " ".join(_GROUPS.sub(lambda group: _filled(group.group(), shown), template).split())
    return re.sub(r"[ :]+(?=[.,])| +(?=[:)])", "", words).rstrip(" ,:-") or "message"


def _shown(argument: object) -> str:
    """Return what is logged of an argument: a whole number, or the class of an exception; else nothing."""
    if isinstance(argument, int) and not isinstance(argument, bool):
        return str(argument)
    kind = argument if isinstance(argument, type) else type(argument)
    return kind.__name__ if issubclass(kind, BaseException) else ""


def _filled(group: str, shown: Iterator[str]) -> str:
    """Return placeholders that belong together with what is shown of them; nothing if nothing is shown."""
    if group == "%%":
        return group
    parts = [next(shown, "") for _ in re.findall(_PLACEHOLDER, group)]
    text = ":".join(filter(None, parts))
    return group[0] + text + group[-1] if text and group[0] != "%" else text
