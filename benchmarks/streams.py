"""Streams to compare rules on: real tables in the order of their files and shuffled, and made-up ones that drift."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from reference_data import data_folder, read_rows
from shoal.arrays import Float64Matrix

__all__ = ["MOST", "other_streams", "streams"]

MOST = 6000
"""Records of a stream."""
ADULT = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
OTHERS = ("AFNLWGT", "AGI", "EMCONTRB", "FEDTAX", "STATETAX", "INTVAL")
NO_MEASURES = {"UTILITYID", "UTILNAME", "STATE", "YEAR", "MONTH"}


def _table(name: str, wanted: Callable[[str], bool] = bool) -> Float64Matrix:
    rows = read_rows(data_folder(), name)
    columns = [column for column in rows[0] if wanted(column)]
    return np.array([[float(row[column]) for column in columns] for row in rows])


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
        "Census, 2 attributes": _unit(_table("census", {"TAXINC", "POTHVAL"}.__contains__)),
        "Census, 13 attributes": _unit(_table("census")),
        "EIA": _unit(_table("eia", lambda name: name not in NO_MEASURES)),
        "Tarragona": _unit(_table("tarragona")),
        "Adult": _unit(_table("adult", set(ADULT).__contains__)),
    }
    draws = [np.random.default_rng(seed) for seed in range(seeds)]
    for name, table in tables.items():
        yield f"{name}, order of the file", [table[:MOST]]
        yield f"{name}, shuffled", [table[draw.permutation(len(table))][:MOST] for draw in draws]
    yield "uniform, 4", [draw.random((MOST, 4)) for draw in draws]
    yield "lognormal, 5", [_unit(np.exp(draw.normal(size=(MOST, 5)))) for draw in draws]
    yield "drifting mixture, 4", [_unit(_drifting(draw)) for draw in draws]
    yield "random walk, 3", [_unit(_walk(draw)) for draw in draws]


def _by_utility() -> Float64Matrix:
    """EIA's measures, all of a utility's and then all of the next one's; the file goes month after month."""
    table = _table("eia", lambda name: name not in NO_MEASURES - {"UTILITYID"})
    return table[table[:, 0].argsort(kind="stable")][:, 1:]


def _classes() -> Float64Matrix:
    """Adult's columns that hold words, each as its place in the taxonomy: few values, many ties."""
    folder = data_folder()
    rows = read_rows(folder, "adult")[-MOST:]
    columns = []
    for name in ("education", "marital-status", "occupation", "race", "sex", "workclass"):
        taxonomy = read_rows(folder, f"hierarchies/adult_{name}")
        places = {line["level0"]: place for place, line in enumerate(taxonomy)}
        columns.append([float(places[row[name]]) for row in rows])
    return np.array(columns).T


def _seasonal(random: np.random.Generator) -> Float64Matrix:
    """Three waves of different length with noise, and a step in the middle."""
    time = np.arange(MOST)[:, None]
    waves: Float64Matrix = np.sin(2 * np.pi * time / np.array([100.0, 700.0, 2500.0])) + 2.0 * (time > MOST / 2)
    return waves + 0.3 * random.normal(size=(MOST, 3))


def _places(random: np.random.Generator) -> Float64Matrix:
    """Two hundred places on a map, some visited much more often than others."""
    share = 1.0 / np.arange(1, 201)
    which = random.choice(200, size=MOST, p=share / share.sum())
    return random.random((200, 2))[which] + random.normal(size=(MOST, 2)) * 0.004


def other_streams(seeds: int) -> Iterator[tuple[str, list[Float64Matrix]]]:
    """Return streams that no constant was chosen on: other columns, rows, scales and orders, and other made-up ones."""
    census, tarragona = _table("census"), _table("tarragona")
    eia = _table("eia", lambda name: name not in NO_MEASURES)
    tables = {
        "Census, 6 others of its attributes": _unit(_table("census", set(OTHERS).__contains__)),
        "Census, ranks": _unit(census.argsort(axis=0).argsort(axis=0).astype(float)),
        "EIA, logarithms": _unit(np.log1p(np.maximum(eia, 0.0))),
        "Tarragona, cube roots": _unit(np.cbrt(tarragona)),
        "Adult, 5 attributes of the last records": _unit(
            _table("adult", (set(ADULT) - {"fnlwgt"}).__contains__)[-MOST:]
        ),
        "Adult, words by their place in a taxonomy": _unit(_classes()),
    }
    draws = [np.random.default_rng(1000 + seed) for seed in range(seeds)]
    yield "EIA, utility after utility", [_unit(_by_utility())]
    for name, table in tables.items():
        yield f"{name}, order of the file", [table[:MOST]]
        yield f"{name}, shuffled", [table[draw.permutation(len(table))][:MOST] for draw in draws]
    yield "waves with a step, 3", [_unit(_seasonal(draw)) for draw in draws]
    yield "200 places on a map, 2", [_unit(_places(draw)) for draw in draws]
    yield "Poisson counts, 6", [_unit(draw.poisson(2.0, size=(MOST, 6)).astype(float)) for draw in draws]
    yield "Student's t of 2 degrees, 4", [_unit(draw.standard_t(2, size=(MOST, 4))) for draw in draws]
