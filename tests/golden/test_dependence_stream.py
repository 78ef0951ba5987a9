"""Dependence preserved in a stream: Census, six quasi-identifiers, seven confidential numbers, k = 10, delta = 100.

The values were measured with rule ``awo`` on the order of the file. Confidential numbers are scaled by their bounds,
quasi-identifiers by bounds, too, or by spreads.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from shoal.cli import main

pytestmark = pytest.mark.golden


@pytest.mark.parametrize(
    ("scaling", "share", "d_x", "d_y"),
    [
        ("bounds", 0.1, 0.220, 0.399),
        ("bounds", 0.25, 0.228, 0.363),
        ("bounds", 0.5, 0.270, 0.322),
        ("bounds", 0.9, 0.326, 0.284),
        ("spreads", 0.1, 0.225, 0.447),
        ("spreads", 0.25, 0.213, 0.428),
        ("spreads", 0.5, 0.226, 0.378),
        ("spreads", 0.9, 0.288, 0.306),
    ],
)
def test_more_weight_of_confidential_numbers_moves_loss_to_the_quasi_identifiers(
    scaling: str, share: float, d_x: float, d_y: float, data_dir: Path, tmp_path: Path
) -> None:
    with (data_dir / "census.csv").open(newline="") as file:
        rows = [{name: float(cell) for name, cell in row.items()} for row in csv.DictReader(file)]
    attributes: dict[str, Any] = {}
    for number, name in enumerate(rows[0]):
        bounds = [min(row[name] for row in rows), max(row[name] for row in rows)]
        role = {"role": "quasi_identifier", "resolution": 0} if number < 6 else {"role": "confidential"}
        attributes[name] = role | {"bounds": bounds}
    document = {
        "attributes": attributes,
        "subject": "every_record",
        "privacy": {"k": 10},
        "stream": {"delta": 100, "rule": "awo"},
        "steering": {"dependence": share, "scaling": scaling},
    }
    policy, summary = tmp_path / "policy.json", tmp_path / "summary.json"
    policy.write_text(json.dumps(document))
    arguments = ["pipe", str(policy), "-i", str(data_dir / "census.csv"), "-o", str(tmp_path / "out.csv")]
    assert main([*arguments, "--summary", str(summary)]) == 0
    found = json.loads(summary.read_text())
    assert found["d_x"] == pytest.approx(d_x, abs=0.0006)
    assert found["d_y"] == pytest.approx(d_y, abs=0.0006)
