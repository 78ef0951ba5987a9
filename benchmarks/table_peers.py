"""What else can be installed for finished tables, beside Shoal on the same: loss and processor seconds of one run.

Left out, because they cannot run beside this package: polarfrost 0.2.1 does not import without Spark,
project-lighthouse-anonymize 1.0.0 needs numpy 1.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pandas as pd
from anonypyx.microaggregation import MDAVGeneric
from anonypyx.models import kAnonymity
from anonypyx.mondrian import Mondrian
from microagg1d import univariate_microaggregation
from microaggregation import calculate_sse_dynamic
from numpy.typing import NDArray
from papers.common import standardised
from reference_data import data_folder
from shoal.tables import RefinedPartition, refined
from shoal.tables.measures import loss_of

__all__ = ["about_peers", "line_rows", "table_rows"]

Table = NDArray[np.float64]
T = TypeVar("T")
LINE = 1_000_000


def about_peers() -> list[str]:
    """Measure, and write the lines of the page."""
    return [
        "What else there is for Python: anonypyx 0.2.11 on the reference tables as z-scores, loss and seconds. Loss of",
        "Mondrian is that of the centroids of its clusters; it publishes ranges.",
        "",
        "| table | k | anonypyx MDAV | anonypyx Mondrian | `mdav` | `auto` + descent |",
        "|---|---|---|---|---|---|",
        *table_rows(),
        "",
        f"One attribute, {LINE:,} normal draws: the best partition. microagg1d 0.4.0 sorts, as Shoal does;",
        "microaggregation 0.1.9 is given the sorted line, and returns the loss only. Limit: `optimal` loses no more",
        "than microagg1d.",
        "",
        "| k | microagg1d | microaggregation | `optimal` |",
        "|---|---|---|---|",
        *line_rows(),
        "",
    ]


def table_rows() -> list[str]:
    """Return the rows about tables of several attributes."""
    lines = []
    for name in ("census", "tarragona", "eia"):
        values = standardised(data_folder(), name)
        frame = pd.DataFrame(values, columns=[f"a{j}" for j in range(values.shape[1])])
        for k in (3, 10):
            theirs = [_timed(lambda f=frame, k=k: _mdav(f, k)), _timed(lambda f=frame, k=k: _mondrian(f, k))]  # type: ignore[misc]
            cells = [f"{loss_of(values, labels):.2f} ({seconds:.2f} s)" for labels, seconds in theirs]
            for ways in (("mdav", "none"), ("auto", "descent")):
                found, seconds = _own(values, k, *ways)
                cells.append(f"{found.loss:.2f} ({seconds:.3f} s)")
            lines.append(f"| {name} | {k} | " + " | ".join(cells) + " |")
            print(lines[-1], file=sys.stderr)
    return lines


def line_rows() -> list[str]:
    """Return the rows about one attribute."""
    line = np.random.default_rng(3).standard_normal(LINE)
    values, ordered = line[:, None], np.sort(line)[:, None]
    lines = []
    for k in (3, 10, 100):
        univariate_microaggregation(line[:1000], k)  # compiled
        labels, its = _timed(lambda k=k: univariate_microaggregation(line, k).astype(np.int32))  # type: ignore[misc]
        lost, last = _timed(lambda k=k: float(calculate_sse_dynamic(ordered, k)))  # type: ignore[misc]
        found, own = _own(values, k, "optimal", "none")
        theirs = loss_of(values, labels)
        assert found.loss <= theirs * (1.0 + 1e-9)
        lines.append(
            f"| {k} | {theirs:.6f} ({its:.2f} s) | {lost:.6f} ({last:.2f} s) | {found.loss:.6f} ({own:.2f} s) |"
        )
        print(lines[-1], file=sys.stderr)
    return lines


def _timed(function: Callable[[], T]) -> tuple[T, float]:
    began = time.process_time()
    found = function()
    return found, time.process_time() - began


def _own(values: Table, k: int, algorithm: str, refine: str) -> tuple[RefinedPartition, float]:
    refined(values[:1000], k, algorithm, refine)  # compiled
    return _timed(lambda: refined(values, k, algorithm, refine))


def _mdav(frame: pd.DataFrame, k: int) -> NDArray[np.int32]:
    return _labels(MDAVGeneric(frame, list(frame.columns)).partition(k), len(frame))


def _mondrian(frame: pd.DataFrame, k: int) -> NDArray[np.int32]:
    return _labels(Mondrian(frame, list(frame.columns)).partition([kAnonymity(k)]), len(frame))


def _labels(clusters: list[pd.Index], n: int) -> NDArray[np.int32]:
    labels = np.full(n, -1, np.int32)
    for label, members in enumerate(clusters):
        labels[list(members)] = label
    assert (labels >= 0).all()
    return labels


if __name__ == "__main__":
    print("\n".join(about_peers()))
