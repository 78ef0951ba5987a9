"""Lines and batches of a stream."""

from __future__ import annotations

import io
from typing import Any

import pytest
from shoal.formats.format import JsonLinesReader
from support.pipes import PiecewisePipe

pytestmark = pytest.mark.unit


def lines(text: bytes, **more: Any) -> list[bytes]:
    return [message for part in JsonLinesReader(io.BytesIO(text), **more) for message in part]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"\n\n", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a\r", b"b\r"]),
        (b"a\n\nb\n", [b"a", b"", b"b"]),
        (b"\n\na\n \n\t\r\n", [b"", b"", b"a"]),
        (b"a\x0bb\x0cc\xe2\x80\xa8d\xc2\x85e\rf", [b"a\x0bb\x0cc\xe2\x80\xa8d\xc2\x85e\rf"]),
    ],
)
def test_lines_are_messages(text: bytes, expected: list[bytes]) -> None:
    assert lines(text) == expected


def test_batches_are_short_and_lose_nothing() -> None:
    text = [b"%d" % number for number in range(100_000)]
    parts = list(JsonLinesReader(io.BytesIO(b"\n".join(text))))
    assert [message for part in parts for message in part] == text
    assert max(map(len, parts)) <= 512
    assert min(map(len, parts)) >= 1


def test_blank_lines_are_dropped_only_at_the_end() -> None:
    parts = list(JsonLinesReader(io.BytesIO(b"a\n" + b"\n" * 200_000 + b"b" + b"\n" * 200_000)))
    assert sum(map(len, parts)) == 200_002
    assert max(map(len, parts)) <= 512
    assert parts[-1][-1] == b"b"


def test_lines_are_passed_on_as_they_arrive() -> None:
    pipe = PiecewisePipe([b"a\nb\nc", b"c\n", b"d", b"\n"])
    seen = iter(JsonLinesReader(pipe))  # type: ignore[arg-type]  # all that is asked of a stream is read()
    assert (next(seen), pipe.reads) == ([b"a", b"b"], 1)
    assert (next(seen), pipe.reads) == ([b"cc"], 2)
    assert list(seen) == [[b"d"]]


def test_a_line_above_max_bytes_is_cut_and_stays_too_long_without_a_byte_order_mark() -> None:
    text = b"a\n" + b"x" * 1_000_000 + b"\nb\n" + b"y" * 500_000
    found = lines(text, max_bytes=1000)
    assert [len(message) for message in found] == [1, 1004, 1, 1004]
    assert found[2] == b"b"
