"""Published records: order, sorting, cells, fields inside objects, and the scalars that a centroid may have."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shoal.errors import ConfigError, GuaranteeError, InputError
from shoal.formats import CsvEncoder, JsonDecoder, JsonEncoder
from shoal.formats.csv import CsvCellEncoder
from shoal.formats.parquet import encode_parquet
from shoal.policy import CsvDialect, Policy
from support.making import SUBJECT, policy_of, quasi, unchanged_field, usual_policy

pytestmark = pytest.mark.unit

CELLS = CsvCellEncoder(CsvDialect())


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


def policy(**to: str | tuple[str, ...]) -> Policy:
    """Return a policy of quasi-identifiers a, b, c and unchanged fields x, y, z; a name may have another path."""
    names: dict[str, Any] = {"a": quasi(), "x": unchanged_field(), "b": quasi(), "y": unchanged_field("json")}
    flat = policy_of({"who": SUBJECT, **names, "c": quasi(), "z": unchanged_field("string")})
    paths = {name: tuple(path.split(".")) if isinstance(path, str) else path for name, path in to.items()}
    return replace(flat, attributes=tuple(replace(one, to=paths.get(one.name, one.to)) for one in flat.attributes))


RECORD = {"who": "p", "a": 1, "b": 2, "c": 3, "x": "X", "y": [{"k": None}], "z": None}


def row(to: Policy, *, csv: bool = False) -> str:
    encoder = CsvEncoder(to) if csv else JsonEncoder(to)
    block = JsonDecoder(to, encoder=encoder).decode([json.dumps(RECORD).encode()])
    return encoder.encode_clusters([["1", "2", "3"]], block.unchanged_fields, [0, 1])[0].decode()


@pytest.mark.parametrize(
    ("to", "written"),
    [
        ({}, '{"a":1,"x":"X","b":2,"y":[{"k":null}],"c":3,"z":null}'),
        ({"a": "n"}, '{"n":1,"x":"X","b":2,"y":[{"k":null}],"c":3,"z":null}'),
        ({"a": "p.a"}, '{"p":{"a":1},"x":"X","b":2,"y":[{"k":null}],"c":3,"z":null}'),
        ({"a": "p.a", "x": "p.x"}, '{"p":{"a":1,"x":"X"},"b":2,"y":[{"k":null}],"c":3,"z":null}'),
        ({"a": "p.a", "c": "p.c"}, '{"p":{"a":1,"c":3},"x":"X","b":2,"y":[{"k":null}],"z":null}'),
        ({"x": "p.x", "b": "p.q.b", "z": "p.q.z"}, '{"a":1,"p":{"x":"X","q":{"b":2,"z":null}},"y":[{"k":null}],"c":3}'),
        (
            {"a": "p.q.r.a", "b": "p.q.b", "z": "p.z", "y": "s.y", "c": "s.c"},
            '{"p":{"q":{"r":{"a":1},"b":2},"z":null},"x":"X","s":{"y":[{"k":null}],"c":3}}',
        ),
        (
            {"c": "p.q.c", "z": "p.s.z", "a": "p.q.a"},
            '{"p":{"q":{"a":1,"c":3},"s":{"z":null}},"x":"X","b":2,"y":[{"k":null}]}',
        ),
        ({"a": ("%b", 'q"'), "b": ("%b", "ü")}, '{"%b":{"q\\"":1,"ü":2},"x":"X","y":[{"k":null}],"c":3,"z":null}'),
    ],
)
def test_fields_are_grouped_by_their_objects(to: dict[str, Any], written: str) -> None:
    assert row(policy(**to)) == written


def test_columns_of_csv_have_dotted_names_in_the_order_of_the_policy() -> None:
    to = policy(a="p.a", c="p.c", z="p.z,1")
    assert CsvEncoder(to).header() == b'p.a,x,b,y,p.c,"p.z,1"'
    assert row(to, csv=True) == '1,X,2,"[{""k"":null}]",3,'


NOMINAL = {"role": "quasi_identifier", "scale": "nominal"}
ORDINAL = {"role": "quasi_identifier", "scale": "ordinal", "order": ["low", 2, 'h"igh']}
ICD = NOMINAL | {"taxonomy": {"A": ["A1", "A2"], "B": ["B1", "7"]}}
DATE = {"role": "quasi_identifier", "scale": "time"}
TIME = DATE | {"resolution": "15min"}
SECONDS = DATE | {"unit": "s"}
GROUP = {"missing": "group"}

INVALID = [
    (
        NOMINAL,
        [
            *("null", "M", "", '"', '"M', 'M"', '"M""', '"a"b"', '"a","b"', '"a"\n"b"', '"\n"', '"\\x"', '"\\"', "'M'"),
            *("True", "1.5", "01", "-", "1e3", "NaN", "[]", "{}", '["M"]', '"\\ud800"', '"\ud800"', '"\\u00e9"'),
            *('"a" ', None, 1),
        ],
    ),
    (ICD, ["true", "1", "null", "A1"]),
    (ORDINAL, ["low", '"Low"', '"2"', "0", "null", '"high"', '"low"|2']),
    (DATE, ["2026-07-01", '"2026-7-1"', '"2026-07-01T00:00:00Z"', "0", "null", '"２026-07-01"']),
    (TIME, ['"2026-07-01"', '"2026-07-01T09:30:00"', '"2026-07-01T09:30:00.5Z"']),
    (SECONDS, ["1.0", "1e3", '"1"', "null", "+1", "--1"]),
    (quasi(), ["null"]),
    (quasi() | GROUP, ["NULL", "1e400", '"1"', '"null"', ""]),
]


def encoders(attribute: dict[str, Any]) -> tuple[JsonEncoder, CsvEncoder]:
    policy = policy_of({"x": attribute, "y": quasi(), "note": unchanged_field("string")})
    return JsonEncoder(policy), CsvEncoder(policy)


@pytest.mark.parametrize(("attribute", "texts"), INVALID)
def test_any_other_text_violates_the_guarantee(attribute: dict[str, Any], texts: list[Any]) -> None:
    for encoder in encoders(attribute):
        for text in texts:
            with pytest.raises(GuaranteeError) as caught:
                encoder.encode_clusters([[text, "1"]], encoder.encode_unchanged([["n"]], 1), [0, 1])
            assert str(caught.value) == "a centroid does not have one value of its scale per quasi-identifier"


def test_cells_of_categories_and_of_json_keep_their_points_with_decimal_commas() -> None:
    attributes = {"x": NOMINAL | GROUP, "y": quasi(), "j": unchanged_field("json")}
    encoder = CsvEncoder(policy_of(attributes, csv={"delimiter": ";", "decimal": ","}))
    unchanged = encoder.encode_unchanged([["[1.5,2]"]], 1)
    for text, cell in (('"1.5"', "1.5"), ('"a;b"', '"a;b"'), ("true", "true"), ("null", "")):
        assert encoder.encode_clusters([[text, "1.5"]], unchanged, [0, 1]) == [f"{cell};1,5;[1.5,2]".encode()]


@pytest.mark.parametrize(
    "attribute", [ORDINAL | {"order": ["Ω", "b"]}, NOMINAL | {"taxonomy": {"Ω": ["a"], "b": ["c"]}}]
)
def test_a_category_of_the_policy_that_the_encoding_lacks_is_refused(attribute: dict[str, Any]) -> None:
    policy = policy_of({"x": attribute}, csv={"encoding": "latin-1"})
    with pytest.raises(ConfigError, match=r"latin-1 cannot represent every category of attributes\.x"):
        CsvEncoder(policy)


def parquet_of(policy: Policy, texts: list[str], source: pa.DataType | None = None) -> pa.Array:
    rows = [b'{"x":%b}' % text.encode() for text in texts]
    schema = None if source is None else pa.schema([("x", source)])
    table = pq.read_table(io.BytesIO(b"".join(encode_parquet(rows, policy, schema))))
    return table.column("x").combine_chunks()


@pytest.mark.parametrize(
    ("attribute", "texts", "source", "kind"),
    [
        (NOMINAL, ['"M"', "null", '"F"'], None, pa.string()),
        (NOMINAL, ["true", "null"], None, pa.bool_()),
        (NOMINAL, ["1", "null"], None, pa.int64()),
        (NOMINAL, ["1", "null"], pa.int8(), pa.int8()),
        (NOMINAL, ["1", "null"], pa.float64(), pa.int64()),
        (NOMINAL, ["true"], pa.bool_(), pa.bool_()),
        (NOMINAL, ['"M"', "null"], pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int8(), pa.string())),
        (NOMINAL, ['"2020-01-01"'], pa.date32(), pa.string()),
        (NOMINAL, ["null"], pa.null(), pa.null()),
        (ICD, ['"A"', '"7"', "null"], pa.int64(), pa.string()),
        (ORDINAL | {"order": ["a", "b"]}, ['"a"', "null"], None, pa.string()),
        (ORDINAL | {"order": [1, 2]}, ["1", "null"], pa.float64(), pa.int64()),
        (DATE, ['"2020-01-01"', "null"], pa.date32(), pa.string()),
        (TIME, ['"2020-01-01T00:00:00Z"'], pa.timestamp("us"), pa.string()),
        (SECONDS, ["86400", "null"], pa.int32(), pa.int64()),
        (quasi(), ["1.5", "null"], None, pa.float64()),
        (quasi(integer=True, resolution=1), ["1", "null"], pa.int64(), pa.int64()),
    ],
)
def test_columns_of_parquet(attribute: dict[str, Any], texts: list[str], source: Any, kind: pa.DataType) -> None:
    column = parquet_of(policy_of({"x": attribute | GROUP}), texts, source)
    assert column.type == kind
    assert column.to_pylist() == [json.loads(text) for text in texts]


@pytest.mark.parametrize(
    ("attribute", "texts", "remedy"),
    [
        (NOMINAL, ["1", '"M"'], "give its values one type in the input"),
        (NOMINAL, ["1" + "0" * 30], "give its values one type in the input"),
        (
            {"role": "quasi_identifier", "scale": "ordinal", "order": [1, "high"]},
            ["1", '"high"'],
            "write the items of attributes.x.order as texts only, or as integers only",
        ),
        (quasi(resolution=1), ["1" + "0" * 30], "set attributes.x.resolution to another step"),
        ({"role": "confidential"}, ["1", '"M"'], "set attributes.x.type to another type"),
    ],
)
def test_an_attribute_with_values_of_several_types_is_no_column_of_parquet(
    attribute: dict[str, Any], texts: list[str], remedy: str
) -> None:
    """The error names the attribute and a key that it has, not the column."""
    policy = policy_of({"x": attribute | {"to": "out.x"}, "age": quasi()})
    rows = [b'{"out":{"x":%b},"age":1}' % text.encode() for text in texts]
    with pytest.raises(InputError) as caught:
        list(encode_parquet(rows, policy))
    assert str(caught.value) == (
        f"attributes.x: its values do not fit one Parquet type; {remedy}, or write another format"
    )
