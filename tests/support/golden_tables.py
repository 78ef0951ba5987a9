"""The reference tables of the literature on microaggregation, and what the command says of their release."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from shoal.arrays import Float64Matrix
from shoal.cli import main
from support.published_data import read_rows


def columns_of(folder: Path, table: str, names: Iterable[str]) -> Float64Matrix:
    """Return the numbers (n, d) of some attributes."""
    names = list(names)
    return np.array([[float(row[name]) for name in names] for row in read_rows(folder, table)])


def standardised(folder: Path, name: str) -> Float64Matrix:
    """Return a table as z-scores of the population; of ``eia`` UTILITYID and the ten of revenue and sales."""
    names = list(read_rows(folder, name)[0])
    if name == "eia":
        names = ["UTILITYID", *names[names.index("RESREVENUE") :]]
    values = columns_of(folder, name, names)
    scaled: Float64Matrix = (values - values.mean(axis=0)) / values.std(axis=0)
    return scaled


def ranged(values: Float64Matrix) -> Float64Matrix:
    """Return the values scaled to 0 to 1 by their range."""
    return np.ascontiguousarray((values - values.min(axis=0)) / np.ptp(values, axis=0))


def summary_of(command: str, policy: dict[str, Any], source: Path, folder: Path, *more: str) -> dict[str, Any]:
    """Run `shoal pipe` or `shoal batch` on a table and return its summary."""
    (folder / "policy.json").write_text(json.dumps(policy))
    files = ["-i", str(source), "-o", str(folder / "out.csv"), "--summary", str(folder / "summary.json")]
    assert main([command, str(folder / "policy.json"), *files, *more]) == 0
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary
