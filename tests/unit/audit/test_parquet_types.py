"""The judge accepts each type of a Parquet column that the writer gives categories, times and missing values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shoal.audit.releases import compare_parquet
from shoal.formats.parquet import encode_parquet
from support.making import policy_of

pytestmark = pytest.mark.unit

NOMINAL = {"role": "quasi_identifier", "scale": "nominal", "missing": "group"}
ORDINAL = {"role": "quasi_identifier", "scale": "ordinal", "missing": "group"}
TIME = {"role": "quasi_identifier", "scale": "time", "missing": "group"}


@pytest.mark.parametrize(
    ("attribute", "texts", "source"),
    [
        (NOMINAL, ['"M"', "null"], pa.string()),
        (NOMINAL, ['"M"', "null"], pa.dictionary(pa.int32(), pa.string())),
        (NOMINAL, ["true", "null"], pa.bool_()),
        (NOMINAL, ["7", "null"], pa.int16()),
        (NOMINAL, ["7", "null"], pa.float64()),
        (NOMINAL, ['"2020-01-01"'], pa.date32()),
        (NOMINAL, ["null"], pa.string()),
        (NOMINAL | {"taxonomy": {"A": ["1", "2"]}}, ['"1"', '"*"', "null"], pa.int64()),
        (ORDINAL | {"order": ["low", "high"]}, ['"low"', "null"], pa.string()),
        (ORDINAL | {"order": [1, 2]}, ["1", "null"], pa.float64()),
        (TIME, ['"2020-01-01"', "null"], pa.date32()),
        (TIME | {"resolution": "h"}, ['"2020-01-01T00:00:00Z"', "null"], pa.timestamp("us")),
        (TIME | {"unit": "s"}, ["86400", "null"], pa.int32()),
    ],
)
def test_a_released_column_has_the_bytes_of_the_writer(
    attribute: dict[str, Any], texts: list[str], source: pa.DataType, tmp_path: Path
) -> None:
    policy = policy_of({"x": attribute})
    original, released = tmp_path / "original.parquet", tmp_path / "released.parquet"
    pq.write_table(pa.table({"x": pa.nulls(1, source)}), original)
    rows = [b'{"x":%b}' % text.encode() for text in texts]
    for schema, compared in ((pa.schema([("x", source)]), original), (None, None)):
        released.write_bytes(b"".join(encode_parquet(rows, policy, schema)))
        assert compare_parquet(released, policy, {}, compared).is_sound
