"""`UnknownValues`: count values that the taxonomy of their attribute lacks, and that ``unknown: root`` accepts."""

from __future__ import annotations

from collections import Counter

import numpy as np

from shoal.clustering.embedding import category_trees
from shoal.policy import Policy
from shoal.records import Block

__all__ = ["UnknownValues"]


class UnknownValues:
    """Counts such values in blocks of valid records.

    Parameters
    ----------
    policy : Policy
        Its quasi-identifiers and steering attributes with a taxonomy are examined.
    """

    def __init__(self, policy: Policy) -> None:
        trees = category_trees(policy)
        nominal = [(column, a) for column, a in enumerate(policy.clustered) if a.is_nominal]
        self._leaves = [
            (number, column, attribute.name, set(trees[attribute.name].leaf_texts))
            for number, (column, attribute) in enumerate(nominal)
            if attribute.taxonomy is not None and attribute.unknown == "root"
        ]

    def count(self, block: Block) -> Counter[str]:
        """Return the number of records with such a value, for each attribute that has one."""
        found: Counter[str] = Counter()
        for number, column, name, leaves in self._leaves if block.categories else ():
            unknown = [i for i, text in enumerate(block.categories[number]) if text not in leaves]
            if unknown:
                found[name] = int(np.isin(block.values[:, column], unknown).sum())
        return found
