"""The line of every field of a TOML file. The standard reader gives lines for faults of the syntax only."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

__all__ = ["find_long_number", "toml_lines"]

_Path: TypeAlias = tuple[str, ...]

_TOKEN = re.compile(
    r"""
    (?P<blank> [^\S\n]+ | \#[^\n]* )
    | (?P<quoted> \"{3} (?: \\. | [^\\] )*? \"{3,5} (?!\") | '{3} .*? '{3,5} (?!')
        | " (?: \\. | [^"\\\n] )* " | ' [^'\n]* ' )
    | (?P<mark> [\[\]{}=,\n] )
    | (?P<word> [^\s\[\]{}=,\#"']+ )
    """,
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    """A token: its kind, text and line. The last token is empty."""

    kind: str
    text: str
    line: int


def toml_lines(text: str) -> dict[_Path, int]:
    """Return the line (from 1) of each field and of each item of a list, by its path.

    Parameters
    ----------
    text : str
        Valid TOML, as read by `tomllib`.

    Notes
    -----
    Cost: O(n) time and memory in the length of the text.
    """
    return _Reader(text).read()


def find_long_number(text: str, max_digits: int) -> int | None:
    """Return the line (from 1) of the first number of more than ``max_digits`` digits; None without one.

    The text must be valid TOML up to the end of this number.
    """
    words = (token for token in _tokens(text) if token.kind == "word" and len(token.text) > max_digits)
    return next((token.line for token in words if token.text.strip("+-").replace("_", "").isdigit()), None)


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for found in _TOKEN.finditer(text):
        kind = str(found.lastgroup)
        if kind != "blank":
            yield _Token(kind, found.group(), line)
        line += found.group().count("\n")
    yield _Token("end", "", line)


class _Reader:
    """Reads the tokens of a valid file from first to last."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._token = next(self._tokens)
        self._lines: dict[_Path, int] = {}
        self._item_counts: dict[_Path, int] = {}
        """Number of tables read so far of each list that is written as ``[[name]]``."""

    def read(self) -> dict[_Path, int]:
        table: _Path = ()
        while self._token.kind != "end":
            if self._token.text == "[" and self._token.kind == "mark":
                table = self._read_header()
            elif self._token.text == "\n":
                self._take()
            else:
                self._read_field(table)
        return self._lines

    def _take(self) -> _Token:
        taken = self._token
        self._token = next(self._tokens, taken)
        return taken

    def _is_at(self, *marks: str) -> bool:
        return self._token.kind == "end" or (self._token.kind == "mark" and self._token.text in marks)

    def _read_header(self) -> _Path:
        line = self._take().line
        is_item = self._is_at("[")
        if is_item:
            self._take()
        path: _Path = ()
        names = self._read_names()
        for number, name in enumerate(names, 1):
            path = (*path, name)
            if is_item and number == len(names):
                self._item_counts[path] = self._item_counts.get(path, 0) + 1
            self._note((), path, line)
            if path in self._item_counts:
                # A table within a list belongs to its last item.
                path = (*path, str(self._item_counts[path] - 1))
        self._note((), path, line)
        while not self._is_at("\n"):
            self._take()
        return path

    def _read_names(self) -> list[str]:
        """Return the parts of a name, which ends before a bracket or an equals sign."""
        names: list[str] = []
        while not self._is_at("]", "="):
            token = self._take()
            if token.kind == "quoted":
                names.append(str(tomllib.loads(f"name = {token.text}")["name"]))
            else:
                names += filter(None, token.text.split("."))
        return names

    def _read_field(self, table: _Path) -> None:
        line = self._token.line
        path = (*table, *self._read_names())
        self._note(table, path, line)
        self._take()
        self._read_value(path)

    def _note(self, table: _Path, path: _Path, line: int) -> None:
        """Note the line of a field, and of the tables that its name creates within ``table``."""
        for length in range(len(table) + 1, len(path) + 1):
            self._lines.setdefault(path[:length], line)

    def _read_value(self, path: _Path) -> None:
        if self._is_at("["):
            self._read_list(path)
        elif self._is_at("{"):
            self._read_table(path)
        else:
            # A date and its time can be two tokens.
            while not self._is_at(",", "]", "}", "\n"):
                self._take()

    def _read_list(self, path: _Path) -> None:
        self._take()
        count = 0
        while not self._is_at("]"):
            if self._is_at(",", "\n"):
                self._take()
                continue
            item = (*path, str(count))
            self._lines[item] = self._token.line
            self._read_value(item)
            count += 1
        self._take()

    def _read_table(self, path: _Path) -> None:
        self._take()
        while not self._is_at("}"):
            if self._is_at(",", "\n"):
                self._take()
            else:
                self._read_field(path)
        self._take()
