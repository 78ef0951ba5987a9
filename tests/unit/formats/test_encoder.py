from __future__ import annotations

import csv
import io
import json
import random
from typing import Any

import numpy as np
import pytest
from shoal.errors import GuaranteeError
from shoal.formats import CsvEncoder, JsonEncoder
from shoal.formats.csv import CsvCellEncoder
from shoal.policy import CsvDialect
from support.making import policy_of, quasi, unchanged_field, usual_policy

pytestmark = pytest.mark.unit

CELLS = CsvCellEncoder(CsvDialect())

LAYOUTS = ["q", "qk", "kq", "qqkk", "kqk", "kkqqkkq", "qkqkq", "qqqk"]


def layout(order: str) -> dict[str, dict[str, Any]]:
    return {f"f{n}": quasi() if sign == "q" else unchanged_field() for n, sign in enumerate(order)}


@pytest.mark.parametrize("order", LAYOUTS)
def test_fields_are_in_the_order_of_the_policy(order: str) -> None:
    policy = policy_of({"id": {"role": "identifier"}, **layout(order)})
    numbers = [f"{n}.50" for n, sign in enumerate(order) if sign == "q"]
    columns = [[f"{n},", None, n] for n, sign in enumerate(order) if sign == "k"]
    for encoder in (JsonEncoder(policy), CsvEncoder(policy)):
        fields = encoder.encode_unchanged(columns, 3)
        rows = encoder.encode_clusters([numbers], fields, [0, 3])
        expected = [
            {f"f{n}": float(f"{n}.50") if sign == "q" else (f"{n},", None, n)[m] for n, sign in enumerate(order)}
            for m in range(3)
        ]
        if isinstance(encoder, JsonEncoder):
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
    policy = policy_of({"x": quasi(), "y": unchanged_field(), "z": quasi()})
    encoder = JsonEncoder(policy)
    values = ["b", "a", "ab", "", "a!", None, 10, 9, "é", True, "a"]
    published = set()
    for seed in range(20):
        random.Random(seed).shuffle(values)
        rows = encoder.encode_clusters([["1", "2"]], encoder.encode_unchanged([values], len(values)), [0, len(values)])
        assert rows == sorted(rows)
        published.add(b"\n".join(rows))
    assert len(published) == 1


def test_members_are_sorted_if_passthrough_fields_are_on_both_sides() -> None:
    policy = policy_of({"a": unchanged_field(), "x": quasi(), "b": unchanged_field()})
    encoder = JsonEncoder(policy)
    fields = encoder.encode_unchanged([["b", "a"], [1, 2]], 2)
    expected = [b'{"a":"a","x":5,"b":2}', b'{"a":"b","x":5,"b":1}']
    assert encoder.encode_clusters([["5"]], fields, [0, 2]) == expected


def test_clusters_keep_their_order_and_their_members() -> None:
    policy = policy_of({"x": quasi(), "y": unchanged_field()})
    encoder = JsonEncoder(policy)
    fields = encoder.encode_unchanged([[5, 4, 3, 2, 1]], 5)
    expected = [b'{"x":9,"y":4}', b'{"x":9,"y":5}', b'{"x":1,"y":1}', b'{"x":1,"y":2}', b'{"x":1,"y":3}']
    for cluster_bounds in ([0, 2, 2, 5], np.array([0, 2, 2, 5])):
        assert encoder.encode_clusters([["9"], ["8"], ["1"]], fields, cluster_bounds) == expected
    assert encoder.encode_clusters([], [], [0]) == []


def test_without_passthrough_fields_all_members_are_equal() -> None:
    policy = policy_of({"x": quasi(), "y": quasi()})
    assert (
        JsonEncoder(policy).encode_clusters([["1", "2.0"]], JsonEncoder(policy).encode_unchanged([], 2), [0, 2])
        == [b'{"x":1,"y":2.0}'] * 2
    )
    assert CsvEncoder(policy).encode_clusters([["1", "2.0"]], [b"", b""], [0, 2]) == [b"1,2.0"] * 2


@pytest.mark.parametrize(
    "text",
    [
        *("nan", "inf", "-Infinity", "null", "", " 1", "1 ", "1,2", "1_0", "0x1", "01", "+1", "1.", ".5", "1e400"),
        *("-1e309", "9" * 400, "1\n", "１", "true", '"1"', "1}", "1\xff", None, 1, 1.5, b"1"),
    ],
)
@pytest.mark.parametrize("index", [0, 1])
def test_only_finite_numbers_are_published(text: Any, index: int) -> None:
    policy = policy_of({"x": quasi(), "y": quasi(), "z": unchanged_field()})
    centroid = ["1", "2"]
    centroid[index] = text
    for encoder in (JsonEncoder(policy), CsvEncoder(policy)):
        with pytest.raises(GuaranteeError) as caught:
            encoder.encode_clusters([["1", "2"], centroid], encoder.encode_unchanged([[1, 2]], 2), [0, 1, 2])
        assert str(caught.value) == "a centroid does not have one value of its scale per quasi-identifier"
        assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "text", ["0", "-0.5", "1e5", "1E-300", "1.7976931348623157e308", "12345678901234567890", "7.50"]
)
def test_finite_numbers_are_published_as_given(text: str) -> None:
    policy = policy_of({"x": quasi()})
    assert JsonEncoder(policy).encode_clusters([[text]], [b""], [0, 1]) == [b'{"x":%b}' % text.encode()]


@pytest.mark.parametrize("centroid", [[], ["1"], ["1", "2", "3"], ["1,2", "3"], ["1,2"]])
def test_a_centroid_has_one_number_per_attribute(centroid: list[str]) -> None:
    policy = policy_of({"x": quasi(), "y": quasi()})
    with pytest.raises(GuaranteeError, match="one value of its scale per quasi-identifier"):
        JsonEncoder(policy).encode_clusters([centroid], [b""], [0, 1])


@pytest.mark.parametrize("cluster_bounds", [[0, 1], [1, 2], [0, 3], [0], [], [0, 1, 2], [0, 3, 2]])
def test_lengths_of_clusters_and_passthrough_fields_must_match(cluster_bounds: list[int]) -> None:
    policy = policy_of({"x": quasi()})
    centroids = [["1"]] * max(len(cluster_bounds) - 1, 0) if cluster_bounds != [0, 1, 2] else [["1"]]
    with pytest.raises(GuaranteeError, match="do not match"):
        JsonEncoder(policy).encode_clusters(centroids, [b"", b""], cluster_bounds)


def test_the_header_names_the_published_attributes_and_json_has_none() -> None:
    assert JsonEncoder(usual_policy()).header() is None
    assert CsvEncoder(usual_policy()).header() == b"age,income,diagnosis,ward"
    assert CsvEncoder(policy_of({'a,"b"': quasi(), "größe": unchanged_field()})).header() == '"a,""b""",größe'.encode()


# ---------------------------------------------------------------- cells


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
def test_csv_cells_are_quoted_only_if_needed(value: object, cell: bytes) -> None:
    assert (CELLS.encode_column([value]), CELLS.encode_column([])) == ([cell], [])
    assert CELLS.encode_column([value, None, 7, "x,y"]) == [cell, b"", b"7", b'"x,y"']
    if isinstance(value, str):
        assert CELLS.encode_text(value) == cell
        assert CELLS.encode_column([value, "x,y"]) == [cell, b'"x,y"']
