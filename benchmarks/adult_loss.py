"""One measure of loss for numbers, ranks, categories, intervals and sets, whatever made them.

A released value of a numeric or ordinal attribute is a number; of an interval it is the midpoint. A released value of a
nominal attribute is a set of categories: a category alone, those below a node of the taxonomy, or a set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from adult import ATTRIBUTES, MISSING, NOMINAL, NUMERIC, Kind, Tree, numbers, texts, tree_of
from adult_release import Release
from numpy.typing import NDArray

__all__ = ["Loss", "losses", "set_losses"]


class Loss(NamedTuple):
    """Loss of an attribute, 0 to about 1.

    ``own`` is in the attribute's own measure: squared error over the total of the released records (numeric), mean
    difference of ranks over the largest (ordinal), mean tree distance between the value and a category drawn from the
    published set (nominal). ``ncp`` is the normalised certainty penalty of a nominal attribute, the number of other
    categories in the set over the number of all others, and 1 if the value is not in the set; else it equals ``own``.
    """

    own: float
    ncp: float


def losses(release: Release) -> dict[str, Loss]:
    """Return the loss of each attribute."""
    return {kind.name: _loss(kind, release) for kind in ATTRIBUTES}


def _loss(kind: Kind, release: Release) -> Loss:
    published = release.published[kind.name]
    if kind.scale == NOMINAL:
        column = texts(kind.name)
        return set_losses(tree_of(kind), [column[row] for row in release.rows], release.classes, published)
    values = numbers(kind)[release.rows]
    errors = values - np.array(published, np.float64)[release.classes]
    if kind.scale == NUMERIC:
        own = float((errors**2).sum() / ((values - values.mean()) ** 2).sum())
    else:
        own = float(np.abs(errors).mean() / (kind.high - kind.low))
    return Loss(own, own)


def set_losses(
    tree: Tree, values: Sequence[str], classes: Sequence[int] | NDArray[np.int64], sets: Sequence[frozenset[str]]
) -> Loss:
    """Return the mean losses of categories against the sets that are published for their classes."""
    others = max(len(tree.paths) - (MISSING in tree.paths) - 1, 1)
    known: dict[tuple[str, frozenset[str]], tuple[float, float]] = {}
    own = ncp = 0.0
    for value, label in zip(values, classes, strict=True):
        key = value, sets[label]
        if key not in known:
            distances = [tree.distance(value, member) for member in sets[label]]
            width = min((len(sets[label]) - 1) / others, 1.0) if value in sets[label] else 1.0
            known[key] = sum(distances) / len(distances), width
        own += known[key][0]
        ncp += known[key][1]
    return Loss(own / len(values), ncp / len(values))
