"""Lines, batches and CSV records of a stream."""

from __future__ import annotations

import io
from typing import Any

import pytest
from shoal.errors import InputError
from shoal.formats.csv import CsvDecoder, CsvReader
from shoal.formats.format import JsonLinesReader
from support.making import policy_of, quasi, unchanged_field
from support.pipes import PiecewisePipe

pytestmark = pytest.mark.unit


def policy() -> Any:
    return policy_of({"x": quasi(), "y": unchanged_field()})


def cells(text: bytes) -> list[list[str] | None]:
    return [record for part in CsvReader(io.BytesIO(text), policy()) for record in part]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"x,y\n", []),
        (b"x,y\n1,a\n2,b", [["1", "a"], ["2", "b"]]),
        (b"x,y\r\n1,a\r\n\r\n2,b\r\n\r\n", [["1", "a"], [], ["2", "b"]]),
        (b"\xef\xbb\xbfx,y\n1,a\n", [["1", "a"]]),
        (b'\xef\xbb\xbf"x","y"\n"1","a"\n', [["1", "a"]]),
        (b'x,y\n1,"two\nlines, ""quoted"""\n2,b\n', [["1", 'two\nlines, "quoted"'], ["2", "b"]]),
        (b"x,y\n1\n1,2,3\n", [["1"], ["1", "2", "3"]]),
        (b'x,y\n1,"a"b\n2,b\n', [None, ["2", "b"]]),
        (b'x,y\n1,a"b\n2,b\n', [["1", 'a"b'], ["2", "b"]]),
        (b'x,y\n1,a\n2,"never closed\n3,c\n', [["1", "a"], None]),
        (b"x,y\n1,\xff\n2,b\n3,\xc3\n", [None, ["2", "b"], None]),
        (b"x,y\n1,a\rb\n2,b\n", [None, ["2", "b"]]),
        (b"x,y\n1,\x00\n", [["1", "\x00"]]),
        (b"x,y\n1,a\xe2\x80\xa8b\n", [["1", "a\u2028b"]]),
        (b"x,y\n1," + b"z" * 200_000 + b"\n2,b\n", [None, ["2", "b"]]),
    ],
)
def test_records_of_a_csv_file(text: bytes, expected: list[list[str] | None]) -> None:
    assert cells(text) == expected


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"", "the file is empty; give at least a header"),
        (b"\n1,2\n", "no header"),
        (b"\xff,y\n", "no header"),
        (b'"x,y', "no header"),
        (b"x\n1\n", "column 'y' is missing; add it, or remove it from the policy"),
        (b"X,Y\n", "columns 'x', 'y' are missing; the header has 'x', 'y' in another spelling (upper or lower case"),
        (b"X,z\n", "columns 'x', 'y' are missing; the header has 'x' in another spelling"),
        (b"x,\xef\xbc\xb9\n", "column 'y' is missing; the header has 'y' in another spelling"),
        (b"x, y,y\t\n", "column 'y' occurs twice"),
        (b"x,y, y\n", "column 'y' occurs twice"),
        (b"x,y,x\n", "column 'x' occurs twice; rename or remove one of them"),
        (b"z,y,x,z\n", "column 'z' occurs twice"),
        (b"x,y,z\n", "column 'z' is not declared; declare it, or set undeclared: drop"),
        (b"z,x,y,a\n", "columns 'z', 'a' are not declared; declare them, or set undeclared: drop"),
        (b"canary1,canary2\n1,2\n", "no declared column is named here; if this line is a record"),
        (b"x;y\n", "the columns are separated by ';'; set csv.delimiter: ';'"),
        (b"x:y\n", "if the file has them, give the csv.delimiter that separates the columns"),
        (
            "x,y\n".encode("utf-16"),
            "no text in utf-8: the file is compressed, binary or in another encoding; uncompress it, or set",
        ),
    ],
)
def test_a_header_that_does_not_fit_is_refused(header: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        CsvReader(io.BytesIO(header), policy(), name="visits.csv")
    assert str(caught.value).startswith("visits.csv, line 1: ")
    assert message in str(caught.value)
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_name_that_may_be_in_another_encoding_points_at_it() -> None:
    french = policy_of({"x": quasi(), "prénom": unchanged_field()}, csv={"encoding": "cp1252"})
    with pytest.raises(InputError) as caught:
        CsvReader(io.BytesIO("x,prénom\n".encode()), french, name="visits.csv")
    assert str(caught.value).endswith("if the file has it, set csv.encoding, now cp1252, to that of the file")


def test_blanks_around_declared_names_are_ignored() -> None:
    lenient = policy_of({"x": quasi(), " y": unchanged_field()}, undeclared="drop")
    assert CsvReader(io.BytesIO(b" x\t, y, z ,z\n"), lenient).columns == ("x", " y", " z ", "z")


def test_large_files_are_read_in_batches() -> None:
    n = 3_000
    text = b"x,y\n" + b"".join(b'%d,"a\n%d"\n' % (number % 100, number) for number in range(n))
    reader = CsvReader(io.BytesIO(text), policy())
    decoder = CsvDecoder(policy(), reader.columns)
    parts = list(reader)
    assert sum(map(len, parts)) == n
    assert max(map(len, parts)) <= 512
    assert [tail for part in parts for tail in decoder.decode(part).unchanged_fields] == [
        b'"a\n%d"' % number for number in range(n)
    ]


def lines(text: bytes, **more: Any) -> list[bytes]:
    return [message for part in JsonLinesReader(io.BytesIO(text), **more) for message in part]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"\n\n", []),
        (b"a", [b"a"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a\r", b"b\r"]),
        (b"a\n\nb\n", [b"a", b"", b"b"]),
        (b"\n\na\n \n\t\r\n", [b"", b"", b"a"]),
        (b"a\x0bb\x0cc\xe2\x80\xa8d\xc2\x85e\rf", [b"a\x0bb\x0cc\xe2\x80\xa8d\xc2\x85e\rf"]),
    ],
)
def test_lines_are_messages(text: bytes, expected: list[bytes]) -> None:
    assert lines(text) == expected


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


def test_blank_lines_are_dropped_only_at_the_end() -> None:
    parts = list(JsonLinesReader(io.BytesIO(b"a\n" + b"\n" * 200_000 + b"b" + b"\n" * 200_000)))
    assert sum(map(len, parts)) == 200_002
    assert max(map(len, parts)) <= 512
    assert parts[-1][-1] == b"b"
