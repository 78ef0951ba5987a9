"""`shoal pipe` in the setting of Fig. 3 of [1]_: loss and reordering on Census, as the weight of the position grows.

TAXINC and POTHVAL, scaled by their range, in the order of the file, k = 10, delta = 100. The paper prints no table. The
reference is an independent implementation of Algorithms 2 and 3, to four digits or two decimals: its cluster is the
expiring record and its k - 1 nearest; at the end of the stream the oldest expires until fewer than 2k are left, which
are one cluster. At a weight of 0 the paper states a displacement of 80 at most and 25 on average; here it is 81 and
26.9. At 0.02 it states 12 and 0.7, which no known reading of its algorithms reproduces; here it is 18 and 3.23.

References
----------
.. [1] J. Domingo-Ferrer and J. Soria-Comas, "Steered Microaggregation: A Unified Primitive for Anonymization of Data
   Sets and Data Streams", ICDMW 2017, section VI, Fig. 3. doi:10.1109/ICDMW.2017.141
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.golden_tables import summary_of
from support.published_data import read_rows

pytestmark = pytest.mark.golden

TABLE = {
    0: (0.00801, 81, 26.86, 0.0640, 91, 85.16),
    0.0025: (0.00839, 66, 16.23),
    0.005: (0.01137, 79, 10.22, 0.0855, 90, 32.58),
    0.01: (0.01709, 32, 6.08, 0.1070, 43, 19.38),
    0.02: (0.02645, 18, 3.23, 0.1362, 22, 10.74),
    0.03: (0.03262, 14, 2.28),
    0.04: (0.03882, 12, 1.74),
    0.05: (0.04982, 8, 1.06, 0.1905, 12, 5.10),
    0.06: (0.05517, 9, 0.67),
    0.07: (0.05995, 9, 0.44),
    0.1: (0.06527, 2, 0.07, 0.2187, 3, 0.56),
}
"""Weight: mean squared error, largest and mean displacement, mean absolute error, largest and mean excess span."""
MEASURES = (
    ("mse",),
    ("displacement", "max"),
    ("displacement", "mean"),
    ("mae",),
    ("excess_span", "max"),
    ("excess_span", "mean"),
)


def piped(position: object, data_dir: Path, folder: Path) -> dict[str, Any]:
    """Pipe the table with this weight of the position, or a target span; return the summary."""
    rows = read_rows(data_dir, "census")
    attributes: dict[str, Any] = {name: {"role": "identifier"} for name in rows[0]}
    for name in ("TAXINC", "POTHVAL"):
        bounds = [f(float(row[name]) for row in rows) for f in (min, max)]
        attributes[name] = {"role": "quasi_identifier", "bounds": bounds, "resolution": 0}
    policy = {
        "attributes": attributes,
        "subject": "every_record",
        "privacy": {"k": 10},
        "stream": {"delta": 100, "rule": "nearest"},
        "steering": {"position": position, "scaling": "bounds"},
    }
    return summary_of("pipe", policy, data_dir / "census.csv", folder)


@pytest.mark.parametrize("weight", TABLE)
def test_loss_grows_and_reordering_falls_as_in_figure_3(weight: float, data_dir: Path, tmp_path: Path) -> None:
    summary = piped(weight, data_dir, tmp_path)
    for (name, *part), expected in zip(MEASURES, TABLE[weight], strict=False):
        found = summary[name][part[0]] if part else summary[name]
        assert found == pytest.approx(expected, rel=0.005, abs=0.005 if part else 0), (name, part)
    assert summary["released"] == 1080
    assert summary["delay"]["max"] <= 100
    assert "position_weight" not in summary


@pytest.mark.parametrize("weight", [0.005, 0.01, 0.02, 0.05])
def test_a_target_finds_the_weight_that_the_table_has_for_its_span(
    weight: float, data_dir: Path, tmp_path: Path
) -> None:
    span = TABLE[weight][-1]
    summary = piped({"target_span": span}, data_dir, tmp_path)
    assert summary["excess_span"]["mean"] == pytest.approx(span, rel=0.15)
    # The weight is adapted along the stream: it is within a factor of two of the constant one.
    assert weight / 2 < summary["position_weight"] < weight * 2
