"""What a method publishes of Adult: classes, and a number or a set of categories for each class and attribute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from adult import ATTRIBUTES, MISSING, NOMINAL, ORDINAL, Kind, Tree, numbers, texts, tree_of
from numpy.typing import NDArray
from shoal import microaggregate

__all__ = ["Release", "coordinates", "mdav_blocks", "mean", "of_classes", "published_set", "release_of"]

Table = NDArray[np.float64]
Classes = Sequence[NDArray[np.int64]]


class Release(NamedTuple):
    """What a method publishes: E records of the table in C classes.

    ``rows`` (E,) are rows of the table, ``classes`` (E,) the class of each; ``published`` has for each attribute C
    numbers, or C sets of categories.
    """

    rows: NDArray[np.int64]
    classes: NDArray[np.int64]
    published: dict[str, Sequence[Any]]


def of_classes(
    classes: Classes,
    value: Callable[[Kind, Table], float],
    chosen: Callable[[Tree, Sequence[str]], frozenset[str]],
) -> Release:
    """Return the release of classes of rows: ``value`` of the numbers of a class, ``chosen`` of its categories."""
    published: dict[str, Sequence[Any]] = {}
    for kind in ATTRIBUTES:
        if kind.scale == NOMINAL:
            tree, column = tree_of(kind), texts(kind.name)
            published[kind.name] = [chosen(tree, [column[row] for row in rows]) for rows in classes]
        else:
            values = numbers(kind)
            published[kind.name] = [value(kind, values[rows]) for rows in classes]
    return Release(*_joined(classes), published)


def _joined(classes: Classes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of all classes and the class of each row."""
    sizes = [len(rows) for rows in classes]
    return np.concatenate(classes).astype(np.int64), np.repeat(np.arange(len(classes)), sizes)


def mean(kind: Kind, values: Table) -> float:
    """Return the mean of numbers, the lower median of ranks."""
    return float(np.sort(values)[(len(values) - 1) // 2] if kind.scale == ORDINAL else values.mean())


def published_set(tree: Tree, values: Sequence[str]) -> frozenset[str]:
    """Return what a class publishes of a nominal attribute, as a set of categories.

    Missing unless more than half of the members have it; then of these the lowest common ancestor, or the mode if the
    tree is flat.
    """
    present = [value for value in values if value != MISSING]
    if 2 * len(present) <= len(values):
        return frozenset({MISSING})
    if tree.levels == 1:
        return frozenset({max(sorted(set(present)), key=present.count)})
    return min((leaves for leaves in tree.below.values() if leaves >= set(present)), key=len)


def release_of(published: Sequence[dict[str, Any]], evidence: Sequence[dict[str, Any]]) -> Release:
    """Return the release of records and of the clusters in the same order, as `shoal pipe` writes both.

    Each cluster has equal values of all quasi-identifiers, so that the order of its records does not matter.
    """
    classes = [np.array(cluster["offsets"], np.int64) for cluster in evidence]
    starts = np.cumsum([0, *(len(rows) for rows in classes)])
    heads = [published[start] for start in starts[:-1]]
    values: dict[str, Sequence[Any]] = {}
    for kind in ATTRIBUTES:
        found = [head[kind.name] for head in heads]
        if kind.scale == NOMINAL:
            below = tree_of(kind).below
            values[kind.name] = [below[MISSING if text is None else text] for text in found]
        elif kind.scale == ORDINAL:
            values[kind.name] = [float(kind.order.index(text)) for text in found]
        else:
            values[kind.name] = [float(number) for number in found]
    return Release(*_joined(classes), values)


def coordinates(rows: slice) -> Table:
    """Return consecutive rows as points: squared Euclidean distance is the sum of the attributes' squared distances.

    A numeric or ordinal attribute is scaled to [0, 1] by its range, as in the stream. A nominal one has a column for
    each node with the value sqrt(1 / (2 levels)) below it, so that its squared distance is its tree distance.
    """
    columns = []
    for kind in ATTRIBUTES:
        if kind.scale != NOMINAL:
            columns.append((numbers(kind)[rows] - kind.low) / (kind.high - kind.low))
            continue
        tree = tree_of(kind)
        paths = [tree.paths[text] for text in texts(kind.name)[rows]]
        for level in range(tree.levels):
            nodes = np.array([path[level] for path in paths])
            columns += [np.where(nodes == node, (0.5 / tree.levels) ** 0.5, 0.0) for node in np.unique(nodes)]
    return np.ascontiguousarray(np.array(columns).T)


def mdav_blocks(count: int, k: int, delta: int) -> Release:
    """Return MDAV of each block of ``delta`` records, which a stream of this delay could release.

    Publishes the exact mean of a numeric attribute, the lower median of an ordinal one, and of a nominal one the mode,
    or the lowest common ancestor if there is a taxonomy.
    """
    classes: list[NDArray[np.int64]] = []
    for start in range(0, count, delta):
        labels = microaggregate(coordinates(slice(start, min(start + delta, count))), k, "mdav")
        classes += [start + np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
    return of_classes(classes, mean, published_set)
