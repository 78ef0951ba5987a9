"""Streams to compare rules on: real tables in the order of their files and shuffled, and made-up ones that drift."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from shoal.kernel.arrays import Float64Matrix

__all__ = ["MOST", "streams"]

DATA = Path(os.environ.get("SHOAL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
MOST = 6000
"""Records of a stream."""
ADULT = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
NO_MEASURES = {"UTILITYID", "UTILNAME", "STATE", "YEAR", "MONTH"}


def _table(name: str, wanted: Callable[[str], bool] = bool) -> Float64Matrix:
    path = DATA / name
    if not path.exists():
        raise SystemExit(f"bench: {path} is missing; SHOAL_DATA names the folder of the data")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    columns = [index for index, column in enumerate(rows[0]) if wanted(column)]
    return np.array([[float(row[index]) for index in columns] for row in rows[1:]])


def _unit(values: Float64Matrix) -> Float64Matrix:
    low, width = values.min(axis=0), np.ptp(values, axis=0)
    return np.ascontiguousarray((values - low) / np.where(width > 0, width, 1))


def _drifting(random: np.random.Generator) -> Float64Matrix:
    """Eight tight clusters, each on its way."""
    centres, ways = random.random((8, 4)), random.normal(size=(8, 4)) * 0.3 / MOST
    which = random.integers(8, size=MOST)
    return centres[which] + ways[which] * np.arange(MOST)[:, None] + random.normal(size=(MOST, 4)) * 0.01


def _walk(random: np.random.Generator) -> Float64Matrix:
    return np.cumsum(random.normal(size=(MOST, 3)) * 0.1, axis=0) + random.normal(size=(MOST, 3))


def streams(seeds: int) -> Iterator[tuple[str, list[Float64Matrix]]]:
    """Return the name of each stream and one matrix for each seed; in the order of the file there is but one."""
    tables = {
        "Census, 2 attributes": _unit(_table("census.csv", {"TAXINC", "POTHVAL"}.__contains__)),
        "Census, 13 attributes": _unit(_table("census.csv")),
        "EIA": _unit(_table("eia.csv", lambda name: name not in NO_MEASURES)),
        "Tarragona": _unit(_table("tarragona.csv")),
        "Adult": _unit(_table("adult.csv", set(ADULT).__contains__)),
    }
    draws = [np.random.default_rng(seed) for seed in range(seeds)]
    for name, table in tables.items():
        yield f"{name}, order of the file", [table[:MOST]]
        yield f"{name}, shuffled", [table[draw.permutation(len(table))][:MOST] for draw in draws]
    yield "uniform, 4", [draw.random((MOST, 4)) for draw in draws]
    yield "lognormal, 5", [_unit(np.exp(draw.normal(size=(MOST, 5)))) for draw in draws]
    yield "drifting mixture, 4", [_unit(_drifting(draw)) for draw in draws]
    yield "random walk, 3", [_unit(_walk(draw)) for draw in draws]
