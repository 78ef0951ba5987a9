"""Distributions of quasi-identifiers before and after the release, in cells of at least k people, and correlations.

Edges of bins are multiples of 1, 2 or 5 times a power of ten, or the starts of calendar units. They lie between the
first and the last hundredth of the people, and at least k people are beyond them: no extreme value is shown.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.audit.fields import FIELD_SEPARATOR
from shoal.audit.originals import UNUSABLE
from shoal.audit.scales import PublishedCategories, PublishedValues
from shoal.audit.verify import JudgedRelease
from shoal.policy import Attribute, Scale
from shoal.reports.cells import Cell, Int64Vector, cells_of, coarse, merge_neighbours, merge_rare

BINS = 16
MOST_CATEGORIES = 15
MIN_PEOPLE = 30  # of whom a correlation says something
_DAY_MS = 86_400_000
_CALENDAR = (("h", 1), ("h", 6), ("D", 1), ("D", 7), ("M", 1), ("M", 3), ("Y", 1), ("Y", 5), ("Y", 10), ("Y", 50))
_UNIT_MS = {"h": 3_600_000, "D": _DAY_MS, "M": 30.4 * _DAY_MS, "Y": 365.25 * _DAY_MS}


def distributions(judged: JudgedRelease, k: int) -> list[dict[str, Any]]:
    """Return the distribution of each quasi-identifier, that with the largest loss first."""
    originals = judged.originals
    usable = originals.subjects != UNUSABLE
    people, columns = originals.subjects[usable], originals.values[usable].T
    found = []
    for place, one in enumerate(judged.published):
        cells = _cells(one, columns[place], people, Counter(_texts(judged, place)), k)
        loss = None if judged.losses is None else judged.losses.by_attribute.get(one.attribute.name)
        found.append(
            {
                "name": one.attribute.name,
                "scale": one.attribute.scale.value,
                "loss": None if loss is None else float(f"{loss:.2g}"),
                "cells": [
                    {"label": label, "before": coarse(cell.before, k), "after": coarse(cell.after, k)}
                    for label, cell in cells
                ],
            }
        )
    return sorted(found, key=lambda one: -math.inf if one["loss"] is None else -one["loss"])


def correlations(judged: JudgedRelease) -> dict[str, Any] | None:
    """Return the correlations of numbers and times before and after; None if there are fewer than two, or few people.

    Two decimals: the value of one person does not follow from the correlation of 30.
    """
    places = [place for place, one in enumerate(judged.published) if one.has_moments]
    usable = judged.originals.subjects != UNUSABLE
    if len(places) < 2 or len(np.unique(judged.originals.subjects[usable])) < MIN_PEOPLE:  # noqa: PLR2004
        return None
    after = np.array([_numbers(judged.published[place], _texts(judged, place)) for place in places])
    before, released = _correlation(judged.originals.values[usable][:, places].T), _correlation(after)
    change = [[_difference(*pair) for pair in zip(*rows, strict=True)] for rows in zip(before, released, strict=True)]
    names = [judged.published[place].attribute.name for place in places]
    return {"names": names, "before": before, "after": released, "change": change}


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else round(after - before, 2) + 0.0  # no minus zero


def _cells(
    one: PublishedValues, values: npt.NDArray[np.float64], people: Int64Vector, after: Counter[str], k: int
) -> list[tuple[str, Cell]]:
    """Return the cells that may be shown. A missing value is a value of its own, if k people lack one."""
    known = ~np.isnan(values)
    missing = Cell(np.unique(people[~known]), int(np.count_nonzero(~known)), after.pop(one.missing, 0))
    values, people = values[known], people[known]
    if len(np.unique(people)) < k:
        return []
    if isinstance(one, PublishedCategories):
        found = _categories(one, values, people, after, k)
    elif one.has_moments:
        found = _bins(one, values, people, after, k)
    else:
        found = _ranks(one.attribute, values, people, after, k)
    return [*found, ("no value", missing)] if missing.may_be_shown(k) else found


def _bins(
    one: PublishedValues, values: npt.NDArray[np.float64], people: Int64Vector, after: Counter[str], k: int
) -> list[tuple[str, Cell]]:
    edges = bin_edges(one.attribute, values, people, k)
    rows = np.zeros(len(edges) + 1, np.int64)
    for text, count in after.items():
        number = _number(one, text)
        if not math.isnan(number):
            rows[np.searchsorted(edges, number, side="right")] += count
    codes = np.searchsorted(edges, values, side="right").astype(np.int64)
    labels = [_edge_text(one.attribute, edge) for edge in edges]
    is_single = one.attribute.integer and len(edges) > 1 and edges[1] - edges[0] == 1
    merged = merge_neighbours(cells_of(codes, people, rows), k)
    return [
        (labels[first - 1] if is_single and 0 < first == last < len(edges) else _range_text(labels, first, last), cell)
        for first, last, cell in merged
    ]


def bin_edges(
    attribute: Attribute, values: npt.NDArray[np.float64], people: Int64Vector, k: int
) -> npt.NDArray[np.float64]:
    """Return ascending edges; the first and the last bin are open."""
    own = np.sort(values[np.unique(people, return_index=True)[1]])
    beyond = max(len(own) // 100, k)
    low, high = float(own[min(beyond, len(own) - 1)]), float(own[max(len(own) - 1 - beyond, 0)])
    low, high = min(low, high), max(low, high)
    if attribute.scale is Scale.TIME:
        return _calendar_edges(low, high)
    width = max((high - low) / BINS, float(attribute.publication_step()), abs(high) * 1e-9, 1e-9)
    power = 10.0 ** math.floor(math.log10(width))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= width * (1 - 1e-9))
    return np.arange(math.floor(low / step), math.ceil(high / step) + 1).astype(np.float64) * step


def _calendar_edges(low: float, high: float) -> npt.NDArray[np.float64]:
    fitting = (one for one in _CALENDAR if (high - low) / (_UNIT_MS[one[0]] * one[1]) <= BINS)
    unit, step = next(fitting, _CALENDAR[-1])
    first, last = (
        np.datetime64(int(time), "ms").astype(f"datetime64[{unit}]").astype(np.int64) for time in (low, high)
    )
    counts = np.arange(int(first) // step, int(last) // step + 2) * step
    return counts.astype(f"datetime64[{unit}]").astype("datetime64[ms]").astype(np.int64).astype(np.float64)


def _edge_text(attribute: Attribute, edge: float) -> str:
    if attribute.scale is not Scale.TIME:
        return f"{edge:.10g}"
    text = str(np.datetime64(int(edge), "ms").astype("datetime64[m]"))
    return text.removesuffix("T00:00").replace("T", " ")


def _range_text(labels: Sequence[str], first: int, last: int) -> str:
    """Return the range of the bins from one place to another; bin 0 is below the first edge."""
    low, high = labels[first - 1] if first else "", labels[last] if last < len(labels) else ""
    if low and high:
        return f"{low} to below {high}"
    return f"{low} and above" if low else f"below {high}" if high else "all values"


def _ranks(
    attribute: Attribute, values: npt.NDArray[np.float64], people: Int64Vector, after: Counter[str], k: int
) -> list[tuple[str, Cell]]:
    """Return cells of neighbouring ranks. One of several ranks is named by them: fewer than k people may have one."""
    names = [str(item) for item in attribute.order]
    rows = np.zeros(len(names), np.int64)
    for text, count in after.items():
        if (name := _name(text)) in names:
            rows[names.index(name)] += count
    merged = merge_neighbours(cells_of(values.astype(np.int64), people, rows), k)
    return [
        (names[first] if first == last else f"ranks {first + 1} to {last + 1}", cell) for first, last, cell in merged
    ]


def _categories(
    one: PublishedCategories, values: npt.NDArray[np.float64], people: Int64Vector, after: Counter[str], k: int
) -> list[tuple[str, Cell]]:
    texts = [one.shown_category(text) for text in one.categories.texts]
    rows = np.array([after.pop(text, 0) for text in texts], np.int64)
    cells = list(zip(map(_name, texts), cells_of(values.astype(np.int64), people, rows), strict=True))
    nobody = np.zeros(0, np.int64)
    cells += [(_name(text), Cell(nobody, 0, count, text in one.inner_nodes)) for text, count in after.items()]
    return [(name or "other values", cell) for name, cell in merge_rare(cells, k, MOST_CATEGORIES)]


def _name(text: str) -> str:
    """Return what a person reads of a published text, which is JSON."""
    return str(json.loads(text)) if text.startswith('"') else text


def _texts(judged: JudgedRelease, place: int) -> list[str]:
    """Return the published texts of one quasi-identifier, of the rows that have all of them."""
    width = len(judged.published)
    rows = (text.split(FIELD_SEPARATOR) for part in judged.release.by_partition.values() for text in part.quasi)
    return [row[place] for row in rows if len(row) == width]


def _number(one: PublishedValues, text: str) -> float:
    """Return a published number; NaN if it is missing or not on the grid."""
    return one.number_of(text) if one.allows(text) else math.nan


def _numbers(one: PublishedValues, texts: Iterable[str]) -> list[float]:
    known: dict[str, float] = {}
    return [known[text] if text in known else known.setdefault(text, _number(one, text)) for text in texts]


def _correlation(columns: npt.NDArray[np.float64]) -> list[list[float | None]]:
    """Return the correlation of each pair, where both have values; None of fewer than 30, or of equal values."""
    found: list[list[float | None]] = []
    for first in columns:
        row: list[float | None] = []
        for second in columns:
            known = ~np.isnan(first) & ~np.isnan(second)
            has_spread = np.count_nonzero(known) >= MIN_PEOPLE and np.ptp(first[known]) and np.ptp(second[known])
            row.append(round(float(np.corrcoef(first[known], second[known])[0, 1]), 2) + 0.0 if has_spread else None)
        found.append(row)
    return found
