"""Published categories, times and missing values: the forms that are accepted, and their bytes in each format."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shoal.errors import ConfigError, GuaranteeError, InputError
from shoal.formats import CsvEncoder, JsonEncoder
from shoal.formats.parquet import encode_parquet
from shoal.policy import Policy
from support.making import policy_of, quasi, unchanged_field

pytestmark = pytest.mark.unit

NOMINAL = {"role": "quasi_identifier", "scale": "nominal"}
ORDINAL = {"role": "quasi_identifier", "scale": "ordinal", "order": ["low", 2, 'h"igh']}
ICD = NOMINAL | {"taxonomy": {"A": ["A1", "A2"], "B": ["B1", "7"]}}
DATE = {"role": "quasi_identifier", "scale": "time"}
TIME = DATE | {"resolution": "15min"}
SECONDS = DATE | {"unit": "s"}
GROUP = {"missing": "group"}

VALID = [
    (NOMINAL, ['"M"', '""', '"a,b"', '"\\"\\\\\\n\\u001f"', '"é \x7f"', "true", "false", "0", "-7", "1" + "0" * 40]),
    (ICD, ['"A1"', '"A"', '"*"', '"unknown"']),
    (ORDINAL, ['"low"', "2", '"h\\"igh"']),
    (DATE, ['"2026-07-01"', '"10000-01-01"']),
    (DATE | {"resolution": "month"}, ['"2026-07-01"']),
    (TIME, ['"2026-07-01T09:30:00Z"']),
    (SECONDS, ["0", "-86400", "1700000000"]),
    (quasi() | GROUP, ["1.5", "-2e3", "null"]),
    *((attribute | GROUP, ["null"]) for attribute in (NOMINAL, ICD, ORDINAL, DATE, TIME, SECONDS)),
]
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


@pytest.mark.parametrize(("attribute", "texts"), VALID)
def test_a_scalar_of_the_scale_is_published_as_it_is(attribute: dict[str, Any], texts: list[str]) -> None:
    to_json, to_csv = encoders(attribute)
    for text in texts:
        (row,) = to_json.encode_clusters([[text, "1"]], to_json.encode_unchanged([["n"]], 1), [0, 1])
        assert row == f'{{"x":{text},"y":1,"note":"n"}}'.encode()
        assert list(json.loads(row)) == ["x", "y", "note"]
        assert len(to_csv.encode_clusters([[text, "1"]], to_csv.encode_unchanged([["n"]], 1), [0, 1])) == 1


@pytest.mark.parametrize(("attribute", "texts"), INVALID)
def test_any_other_text_violates_the_guarantee(attribute: dict[str, Any], texts: list[Any]) -> None:
    for encoder in encoders(attribute):
        for text in texts:
            with pytest.raises(GuaranteeError) as caught:
                encoder.encode_clusters([[text, "1"]], encoder.encode_unchanged([["n"]], 1), [0, 1])
            assert str(caught.value) == "a centroid does not have one value of its scale per quasi-identifier"


def test_the_text_of_one_attribute_cannot_pass_for_those_of_two() -> None:
    policy = policy_of({"x": NOMINAL, "y": NOMINAL, "z": NOMINAL})
    encoder = JsonEncoder(policy)
    for centroid in (['"a', 'b"', '"c"'], ['"a"\n"b"', '"c"'], ['"a"', '"b"\n"c"', ""], ['"a"', '"b"', '"c"', '"d"']):
        with pytest.raises(GuaranteeError):
            encoder.encode_clusters([centroid], [b""], [0, 1])


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ('"M"', "M"),
        ('"a;b"', '"a;b"'),
        ('"a,b"', "a,b"),
        ('"say \\"hi\\"\\n"', '"say ""hi""\n"'),
        ('"1.5"', "1.5"),
        ('"null"', "null"),
        ("true", "true"),
        ("-7", "-7"),
        ("null", ""),
        ('""', ""),
    ],
)
def test_the_cells_of_categories(text: str, cell: str) -> None:
    policy = policy_of({"x": NOMINAL | GROUP, "y": quasi()}, csv={"delimiter": ";", "decimal": ","})
    assert CsvEncoder(policy).encode_clusters([[text, "1.5"]], [b""], [0, 1]) == [f"{cell};1,5".encode()]


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
