"""The form in which the lines of an exported release are written."""

from __future__ import annotations

import json
from pathlib import Path

from shoal.errors import InputError

__all__ = ["EMPTY_CONTENTS", "LineForm"]

EMPTY_CONTENTS: tuple[object, ...] = (None, [], {})
"""How exports write that a message has no headers."""


class LineForm:
    """The form in which all lines of an exported release are written: order of names, blanks, escapes, empty fields.

    The export is not the release: any one form is accepted. But lines of different forms could carry data, so the lines
    of one file must have one of the forms that `json.dumps` and ``jq -c`` write.

    Parameters
    ----------
    path : Path
        Named in errors.
    envelope : frozenset of str
        Names of the fields that may be empty.
    """

    def __init__(self, path: Path, envelope: frozenset[str]) -> None:
        self._path, self._envelope = path, envelope
        self._names: list[str] = []
        self._empty: dict[str, str] = {}
        self._writers = [
            json.JSONEncoder(ensure_ascii=ascii_only, separators=separators).encode
            for separators in ((",", ":"), (", ", ": "))
            for ascii_only in (False, True)
        ]

    def check(self, number: int, text: str) -> None:
        """Check one line; its text is a JSON object with each name once.

        Raises
        ------
        InputError
            The line has another form than the lines before it, a number of thousands of digits, or more levels than
            Python converts: hundreds with version 3.11, thousands with 3.13.
        """
        try:
            line = json.loads(text)
            self._writers = [write for write in self._writers if write(line) == text]
        except (ValueError, RecursionError):
            # An integer may have more digits than Python converts.
            raise InputError(
                f"{self._path}, line {number}: a number is too long, or values are nested too deeply; export again"
            ) from None
        self._names = self._names or list(line)
        # null, [] and {} say the same. Other contents are for the check of the envelope.
        empty = {name: repr(line[name]) for name in self._envelope & line.keys() if line[name] in EMPTY_CONTENTS}
        self._empty = empty | self._empty
        if self._writers and list(line) == self._names and empty.items() <= self._empty.items():
            return
        other = "than the lines before it" if number > 1 else "than json.dumps or jq -c writes it"
        raise InputError(
            f"{self._path}, line {number}: written in another way {other} (blanks, escapes, order, null or []); "
            "export again, all lines with one JSON writer"
        )
