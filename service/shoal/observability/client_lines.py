"""What is logged of a line of a client library: its template, numbers of brokers, and classes of exceptions.

Every other argument is left out, and so is the text of an exception: they may hold attribute values. A node id, a port
or a count is a whole number, and an attribute value never is one there: clients handle messages as bytes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

__all__ = ["client_line", "client_template", "is_routine"]

_PLACEHOLDER = r"%(?:\(\w+\))?[-#0 +]*(?:\d+|\*)?(?:\.(?:\d+|\*))?[diouxXeEfFgGcrsa]"
_JOINED = rf"{_PLACEHOLDER}(?::{_PLACEHOLDER})*"
_ONE = re.compile(rf"%%|{_PLACEHOLDER}")
_GROUPS = re.compile("|".join(("%%", rf"\({_JOINED}\)", rf"\[{_JOINED}\]", f"'{_JOINED}'", f'"{_JOINED}"', _JOINED)))
"""Placeholders of a logging template, with the quotation marks or brackets around them."""
_ROUTINE = ("Heartbeat failed for group %s because it is rebalancing",)
"""Templates of warnings that every rebalance writes."""


def client_line(record: logging.LogRecord) -> str:
    """Return the line of a client with the arguments that may be logged; without the placeholders of the others."""
    return _line(record, record.args if isinstance(record.args, tuple) else ())


def client_template(record: logging.LogRecord) -> str:
    """Return the line of a client without any argument: lines that differ in arguments only have the same."""
    return _line(record, ())


def is_routine(record: logging.LogRecord) -> bool:
    """Return whether the client warns of what is no fault."""
    return record.msg in _ROUTINE


def _line(record: logging.LogRecord, arguments: tuple[object, ...]) -> str:
    if not isinstance(record.msg, str):
        return "message"
    # Asyncio appends the exception of a task to the template, from its second line on.
    template = record.msg.partition("\n")[0]
    placeholders = [found for found in _ONE.findall(record.msg) if found != "%%"]
    # A template that takes its arguments in another way gets none.
    shown = iter(map(_shown, arguments) if len(placeholders) == len(arguments) else [""] * len(placeholders))
    words = " ".join(_GROUPS.sub(lambda group: _filled(group.group(), shown), template).split())
    return re.sub(r"[ :]+(?=[.,])| +(?=[:)])", "", words).rstrip(" ,:-") or "message"


def _shown(argument: object) -> str:
    """Return what is logged of an argument: a whole number, or the class of an exception; else nothing."""
    if isinstance(argument, int) and not isinstance(argument, bool):
        return str(argument)
    if isinstance(argument, BaseException):
        return type(argument).__name__
    if isinstance(argument, type) and issubclass(argument, BaseException):
        return argument.__name__
    return ""


def _filled(group: str, shown: Iterator[str]) -> str:
    """Return placeholders that belong together with what is shown of them; nothing if nothing is shown."""
    if group == "%%":
        return group
    parts = [next(shown, "") for _ in re.findall(_PLACEHOLDER, group)]
    text = ":".join(filter(None, parts))
    return group[0] + text + group[-1] if text and group[0] != "%" else text
