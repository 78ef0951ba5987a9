from __future__ import annotations

import csv
import io
import itertools
import json
import random
from typing import Any

import numpy as np
import pytest
from shoal.errors import GuaranteeError
from shoal.policy import CsvDialect
from shoal.records import CsvEncoder, Encoder, RecordEncoder
from shoal.records.cells import CellWriter, json_cells
from support.making import kept, policy_of, quasi, usual_policy

pytestmark = pytest.mark.unit

CELLS = CellWriter(CsvDialect())

LAYOUTS = ["q", "qk", "kq", "qqkk", "kqk", "kkqqkkq", "qkqkq", "qqqk"]


def layout(order: str) -> dict[str, dict[str, Any]]:
    return {f"f{n}": quasi() if sign == "q" else kept() for n, sign in enumerate(order)}


@pytest.mark.parametrize("order", LAYOUTS)
def test_fields_leave_in_the_order_of_the_policy(order: str) -> None:
    policy = policy_of({"id": {"role": "identifier"}, **layout(order)})
    numbers = [f"{n}.50" for n, sign in enumerate(order) if sign == "q"]
    columns = [[f"{n},", None, n] for n, sign in enumerate(order) if sign == "k"]
    for encoder in (Encoder(policy), CsvEncoder(policy)):
        tails = encoder.tails(columns, 3)
        rows = encoder.rows([numbers], tails, [0, 3])
        expected = [
            {f"f{n}": float(f"{n}.50") if sign == "q" else (f"{n},", None, n)[m] for n, sign in enumerate(order)}
            for m in range(3)
        ]
        if isinstance(encoder, Encoder):
            found = [json.loads(row) for row in rows]
            assert [list(record) for record in found] == [list(record) for record in expected]
            assert sorted(map(repr, found)) == sorted(map(repr, expected))
        else:
            text = b"\n".join([encoder.header(), *rows]).decode()
            read = list(csv.DictReader(io.StringIO(text)))
            wanted = [
                {k: "" if v is None else f"{v:.2f}" if isinstance(v, float) else str(v) for k, v in record.items()}
                for record in expected
            ]
            assert sorted(map(repr, read)) == sorted(map(repr, wanted))


def test_members_are_sorted_by_their_published_bytes() -> None:
    policy = policy_of({"x": quasi(), "y": kept(), "z": quasi()})
    encoder = Encoder(policy)
    values = ["b", "a", "ab", "", "a!", None, 10, 9, "é", True, "a"]
    published = set()
    for seed in range(20):
        random.Random(seed).shuffle(values)
        rows = encoder.rows([["1", "2"]], encoder.tails([values], len(values)), [0, len(values)])
        assert rows == sorted(rows)
        published.add(b"\n".join(rows))
    assert len(published) == 1


def test_clusters_keep_their_order_and_their_members() -> None:
    policy = policy_of({"x": quasi(), "y": kept()})
    encoder = Encoder(policy)
    tails = encoder.tails([[5, 4, 3, 2, 1]], 5)
    expected = [b'{"x":9,"y":4}', b'{"x":9,"y":5}', b'{"x":1,"y":1}', b'{"x":1,"y":2}', b'{"x":1,"y":3}']
    for offsets in ([0, 2, 2, 5], np.array([0, 2, 2, 5])):
        assert encoder.rows([["9"], ["8"], ["1"]], tails, offsets) == expected
    assert encoder.rows([], [], [0]) == []


def test_without_kept_fields_all_members_are_alike() -> None:
    policy = policy_of({"x": quasi(), "y": quasi()})
    assert Encoder(policy).rows([["1", "2.0"]], Encoder(policy).tails([], 2), [0, 2]) == [b'{"x":1,"y":2.0}'] * 2
    assert CsvEncoder(policy).rows([["1", "2.0"]], [b"", b""], [0, 2]) == [b"1,2.0"] * 2


@pytest.mark.parametrize(
    "text",
    [
        *("nan", "inf", "-Infinity", "null", "", " 1", "1 ", "1,2", "1_0", "0x1", "01", "+1", "1.", ".5", "1e400"),
        *("-1e309", "9" * 400, "1\n", "１", "true", '"1"', "1}", "1\xff", None, 1, 1.5, b"1"),
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_only_finite_numbers_are_published(text: Any, place: int) -> None:
    policy = policy_of({"x": quasi(), "y": quasi(), "z": kept()})
    centroid = ["1", "2"]
    centroid[place] = text
    for encoder in (Encoder(policy), CsvEncoder(policy)):
        with pytest.raises(GuaranteeError) as caught:
            encoder.rows([["1", "2"], centroid], encoder.tails([[1, 2]], 2), [0, 1, 2])
        assert str(caught.value) == "a centroid is not a finite number"
        assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "text", ["0", "-0.5", "1e5", "1E-300", "1.7976931348623157e308", "12345678901234567890", "7.50"]
)
def test_finite_numbers_are_published_as_they_are_printed(text: str) -> None:
    policy = policy_of({"x": quasi()})
    assert Encoder(policy).rows([[text]], [b""], [0, 1]) == [b'{"x":%b}' % text.encode()]


@pytest.mark.parametrize("centroid", [[], ["1"], ["1", "2", "3"], ["1,2", "3"], ["1,2"]])
def test_a_centroid_has_one_number_per_attribute(centroid: list[str]) -> None:
    policy = policy_of({"x": quasi(), "y": quasi()})
    with pytest.raises(GuaranteeError, match="not a finite number"):
        Encoder(policy).rows([centroid], [b""], [0, 1])


@pytest.mark.parametrize("offsets", [[0, 1], [1, 2], [0, 3], [0], [], [0, 1, 2], [0, 3, 2]])
def test_clusters_and_tails_must_belong_together(offsets: list[int]) -> None:
    policy = policy_of({"x": quasi()})
    centroids = [["1"]] * max(len(offsets) - 1, 0) if offsets != [0, 1, 2] else [["1"]]
    with pytest.raises(GuaranteeError, match="do not belong together"):
        Encoder(policy).rows(centroids, [b"", b""], offsets)


def test_json_has_no_header() -> None:
    encoder: RecordEncoder = Encoder(usual_policy())
    assert encoder.header() is None


def test_the_header_names_what_is_published() -> None:
    assert CsvEncoder(usual_policy()).header() == b"age,income,diagnosis,ward"
    assert CsvEncoder(policy_of({'a,"b"': quasi(), "größe": kept()})).header() == '"a,""b""",größe'.encode()


# ---------------------------------------------------------------- cells


def test_json_cells_are_what_the_standard_library_would_write() -> None:
    texts = [chr(code) for code in itertools.chain(range(0xD800), (0xE000, 0x1F600, 0x10FFFF))]
    cells = json_cells(texts)
    assert [json.loads(cell) for cell in cells] == texts
    assert cells == [json.dumps(text, ensure_ascii=False).encode() for text in texts]
    assert json_cells([]) == []


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("", b""),
        ("x", b"x"),
        ("é", "é".encode()),
        ("a,b", b'"a,b"'),
        ('say "x"', b'"say ""x"""'),
        ("a\nb", b'"a\nb"'),
        ("a\rb", b'"a\rb"'),
        (" a ", b" a "),
        ("null", b"null"),
        (None, b""),
        (True, b"true"),
        (1.50, b"1.5"),
        (1e2, b"100"),
        (10**30, b"1" + b"0" * 30),
        ("=cmd()", b"=cmd()"),
    ],
)
def test_csv_cells_are_quoted_only_if_they_must_be(value: object, cell: bytes) -> None:
    assert CELLS.column([value]) == [cell]
    assert CELLS.column([value, None, 7, "x,y"]) == [cell, b"", b"7", b'"x,y"']
    if isinstance(value, str):
        assert CELLS.text(value) == cell
        assert CELLS.column([value, "x,y"]) == [cell, b'"x,y"']


def test_csv_cells_of_nothing() -> None:
    assert CELLS.column([]) == []
