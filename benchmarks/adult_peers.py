"""A generalizing anonymizer on Adult: anonypyx 0.2.11, Mondrian.

It publishes the interval of each numeric attribute and the set of categories of each nominal one. Left out: anjana
1.2.3, which pins versions of numpy and pandas that cannot be installed beside this package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from adult import ATTRIBUTES, NOMINAL, Kind, Tree, numbers, texts
from adult_release import Release, mean, of_classes, published_set
from anonypyx.models import kAnonymity
from anonypyx.mondrian import Mondrian
from numpy.typing import NDArray

__all__ = ["mondrian"]


def mondrian(count: int, k: int, block: int | None = None) -> tuple[Release, Release]:
    """Return the classes of anonypyx's Mondrian with two kinds of published values.

    First what it publishes: intervals, here their midpoints, and sets of categories. Then the means, medians and modes
    of the same classes, which it does not publish.

    Parameters
    ----------
    count
        Number of records from the start of the table.
    k
        Least size of a class.
    block
        Number of consecutive records that are anonymized together; all of them if None.
    """
    columns = {
        kind.name: pd.Categorical(texts(kind.name)[:count]) if kind.scale == NOMINAL else numbers(kind)[:count]
        for kind in ATTRIBUTES
    }
    frame = pd.DataFrame(columns)
    classes: list[NDArray[np.int64]] = []
    for rows in _cuts(count, block or count, k):
        part = frame.iloc[rows]
        classes += [np.array(index) for index in Mondrian(part, list(columns)).partition([kAnonymity(k)])]
    return of_classes(classes, _midpoint, _every), of_classes(classes, mean, published_set)


def _midpoint(_: Kind, values: NDArray[np.float64]) -> float:
    return float((values.min() + values.max()) / 2)


def _every(_: Tree, values: Sequence[str]) -> frozenset[str]:
    return frozenset(values)


def _cuts(count: int, block: int, k: int) -> Iterator[slice]:
    """Yield blocks of records; the last one takes a rest of fewer than k."""
    start = 0
    while start < count:
        end = count if count - start - block < k else start + block
        yield slice(start, end)
        start = end
