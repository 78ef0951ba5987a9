"""Falsified releases: the released file says more than its values, or writes them in another way."""

from __future__ import annotations

import re
from collections.abc import Callable

from support.named_falsifications import Edit, Falsification, editor, falsifications_of
from support.release_files import ReleaseFiles


@editor
def lines(release: ReleaseFiles, change: Callable[[list[bytes]], object]) -> None:
    """Change the lines of the released file."""
    found = release.released_bytes().splitlines()
    change(found)
    release.released = b"".join(line + b"\n" for line in found)


def each(pattern: bytes, text: bytes, *, first: int = 0, last: int | None = None) -> Edit:
    """Return an edit by a regular expression of the lines from ``first`` to ``last``."""
    return lines(
        lambda found: found.__setitem__(slice(first, last), [re.sub(pattern, text, line) for line in found[first:last]])
    )


def content(change: Callable[[bytes], bytes]) -> Edit:
    """Return an edit of all bytes of the released file."""
    return lambda release: setattr(release, "released", change(release.released_bytes()))


def besides(*fields: bytes) -> Edit:
    """Return an edit that adds fields to the lines of an export: each text in turn."""
    return lines(
        lambda found: found.__setitem__(
            slice(None), [line[:-1] + fields[place % len(fields)] + b"}" for place, line in enumerate(found)]
        )
    )


FALSIFICATIONS: list[Falsification] = [
    *falsifications_of(
        "topic",
        ("wrapper: a partition as a float", "refused", each(rb'"partition": (\d)', rb'"partition": \1.0', last=5)),
        ("wrapper: a key in the first lines", "envelope", each(rb"^\{", b'{"key": "p1", ', last=5)),
        ("wrapper: a key in some lines", "envelope", besides(b', "key": null', b', "key": null', b', "key": ""')),
        ("wrapper: headers in some lines", "envelope", besides(b', "headers": []', b', "headers": [["a", "b"]]')),
        ("wrapper: zero as the headers", "envelope", besides(b', "headers": []', b', "headers": 0')),
        ("wrapper: false as a key", "envelope", besides(b', "key": null', b', "key": false')),
        ("wrapper: a field twice", "refused", each(rb"^\{", b'{"value": "", ', last=5)),
        ("wrapper: rows under the other partition", "nothing_else", each(rb'"partition": 0', b'"partition": 1')),
    ),
    *falsifications_of(
        "stream",
        ("a mean with a decimal", "grid", each(rb'("age":\d+)', rb"\1.0", last=3)),
        ("a mean as a text", "grid", each(rb'"age":(\d+)', rb'"age":"\1"', last=3)),
        ("a mean with an exponent", "grid", each(rb'"income":(\d+)00\b', rb'"income":\1e2', last=3)),
        ("a blank after a colon", "spelling", each(rb'"age":', b'"age": ', last=1)),
        ("a needless escape", "spelling", each(rb'"tag":"t', rb'"tag":"\\u0074', last=1)),
        ("a field twice", "columns", each(rb"^\{", b'{"age":7,', last=1)),
        ("a field besides", "columns", each(rb"\}$", b',"seen":7}', last=1)),
        ("the name of a person besides", "hidden", each(rb"\}$", b',"patient":"p7"}', last=1)),
        ("fields in another order", "columns", each(rb'("age":\d+),("income":\d+)', rb"\2,\1", last=1)),
        ("half a step of the income", "grid", each(rb'"income":(\d+)', rb'"income":\g<1>.5', last=3)),
        ("an age beyond the bounds", "bounds", each(rb'"age":\d+', b'"age":111', last=3)),
        ("minus zero", "grid", each(rb'"age":\d+', b'"age":-0', last=3)),
        ("null for an age", "grid", each(rb'"age":\d+', b'"age":null', last=3)),
        ("a carriage return at the end of a line", "spelling", each(rb"$", b"\r", last=1)),
        ("an empty line", "columns", lines(lambda found: found.insert(3, b""))),
        ("an empty line at the end", "columns", content(lambda text: text + b"\n")),
        ("a byte order mark", "columns", content(lambda text: b"\xef\xbb\xbf" + text)),
        ("zeros at the end", "columns", content(lambda text: text + bytes(8))),
        ("a byte that is not UTF-8", "columns", each(rb'"ward":"', b'"ward":"\xff', last=1)),
    ),
    *falsifications_of(
        "stream csv",
        ("a cell in needless quotation marks", "spelling", each(rb"^(\d+)", rb'"\1"', first=1, last=2)),
        ("a cell besides", "columns", each(rb"$", b",7", first=1, last=2)),
        ("columns with other names", "columns", each(rb"income", b"Income", last=1)),
        ("columns in another order", "columns", each(rb"age,income", b"income,age", last=1)),
        ("a blank before a number", "grid", each(rb"^", b" ", first=1, last=2)),
        ("a line that ends with CRLF", "spelling", each(rb"$", b"\r", first=1, last=2)),
    ),
]
