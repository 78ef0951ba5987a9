"""`shoal pipe` in the setting of Fig. 3 of the paper *Steered Microaggregation* (doi:10.1109/ICDMW.2017.141).

Census TAXINC and POTHVAL, scaled by their range, in the order of the file, k = 10, delta = 100. Reference: an
independent implementation of Algorithms 2 and 3 with the expiring record's nearest neighbours. Tolerance 0.5 %.
The paper prints a maximum of 12 and a mean of 0.7 displaced places at a weight of 0.02; no known reading of its
algorithms reproduces that, and this one gives 18 and 3.23.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shoal.cli import main
from support.published_data import read_rows

pytestmark = pytest.mark.golden

TABLE = {
    0: (0.00801, 0.0640, 81, 26.86, 91, 85.16),
    0.005: (0.01137, 0.0855, 79, 10.22, 90, 32.58),
    0.01: (0.01709, 0.1070, 32, 6.08, 43, 19.38),
    0.02: (0.02645, 0.1362, 18, 3.23, 22, 10.74),
    0.05: (0.04982, 0.1905, 8, 1.06, 12, 5.10),
    0.1: (0.06527, 0.2187, 2, 0.07, 3, 0.56),
}


def piped(position: object, data_dir: Path, folder: Path) -> tuple[dict[str, Any], int]:
    """Pipe the table with this weight of the position, or a target span; return the summary and the record count."""
    rows = read_rows(data_dir, "census")
    used = ("TAXINC", "POTHVAL")
    bounds = {name: [f(float(row[name]) for row in rows) for f in (min, max)] for name in used}
    policy = {
        "attributes": {
            name: {"role": "quasi_identifier", "bounds": bounds[name], "resolution": 0}
            if name in used
            else {"role": "identifier"}
            for name in rows[0]
        },
        "subject": "every_record",
        "privacy": {"k": 10},
        "stream": {"delta": 100, "rule": "nearest"},
        "steering": {"position": position, "scaling": "bounds"},
    }
    (folder / "policy.yaml").write_text(json.dumps(policy))
    summary = folder / "summary.json"
    assert not main(
        [
            *("pipe", str(folder / "policy.yaml"), "-i", str(data_dir / "census.csv")),
            *("-o", str(folder / "out.csv"), "--summary", str(summary)),
        ]
    )
    return json.loads(summary.read_text()), len(rows)


@pytest.mark.parametrize("weight", TABLE)
def test_loss_and_reordering_of_figure_3(weight: float, data_dir: Path, tmp_path: Path) -> None:
    summary, count = piped(weight, data_dir, tmp_path)
    mse, mae, moved_most, moved, span_most, span = TABLE[weight]
    assert summary["mse"] == pytest.approx(mse, rel=0.005)
    assert summary["mae"] == pytest.approx(mae, rel=0.005)
    assert summary["displacement"]["max"] == moved_most
    assert summary["displacement"]["mean"] == pytest.approx(moved, rel=0.005, abs=0.005)
    assert summary["excess_span"]["max"] == span_most
    assert summary["excess_span"]["mean"] == pytest.approx(span, rel=0.005, abs=0.005)
    assert summary["released"] == count
    assert summary["delay"]["max"] <= 100
    assert "position_weight" not in summary


@pytest.mark.parametrize("weight", [0.005, 0.01, 0.02, 0.05])
def test_a_target_finds_the_weight_that_the_table_has_for_its_span(
    weight: float, data_dir: Path, tmp_path: Path
) -> None:
    span = TABLE[weight][-1]
    summary, _ = piped({"target_span": span}, data_dir, tmp_path)
    assert summary["excess_span"]["mean"] == pytest.approx(span, rel=0.15)
    # The weight is adapted along the stream: it is within a factor of two of the constant one.
    assert weight / 2 < summary["position_weight"] < weight * 2
