"""Codes of the categories of one partition or table.

A block numbers its categories by itself (`Block.categories`). Records of different blocks meet in one cluster, so the
pipeline gives each category one code for as long as a record with it is held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Vector
from shoal.clustering.embedding import CategoryTexts, CategoryTree, category_trees
from shoal.policy import Attribute, Policy
from shoal.records import Block

__all__ = ["CategoryIndex"]

FEWEST_TO_DROP = 512
"""Categories of an attribute from which codes without a held record are dropped."""


class CategoryIndex:
    """Gives each category of the nominal attributes a code, and keeps its text.

    Parameters
    ----------
    policy : Policy

    Attributes
    ----------
    trees : dict of str to CategoryTree
        Taxonomy of each nominal attribute, by name.
    texts : dict of str to dict
        Text of each category by its code, for each nominal attribute by name. It is updated with each block.

    Notes
    -----
    The leaves of a taxonomy have the codes 0, 1, ... in its order. Other categories are numbered in the order in which
    they are read, so codes differ after a restart. No code is given twice.
    Memory: if `drop_unused` is called for each block, about `FEWEST_TO_DROP` categories or as many as records are held.
    """

    def __init__(self, policy: Policy) -> None:
        self.trees = category_trees(policy)
        self._columns = [
            _AttributeCodes(number, attribute, self.trees[attribute.name])
            for number, attribute in enumerate(policy.clustered)
            if attribute.is_nominal
        ]
        self.texts: dict[str, CategoryTexts] = {column.name: column.texts for column in self._columns}

    def encode(self, block: Block) -> Block:
        """Return the block with codes instead of its own numbers of categories, and without ``categories``."""
        if not self._columns:
            return block
        values = block.values.copy()
        for column, categories in zip(self._columns, block.categories, strict=True):
            values[:, column.number] = column.encode(values[:, column.number], categories)
        return replace(block, values=values, categories=())

    def count_unknown(self, block: Block) -> Counter[str]:
        """Count the values of a block that the taxonomy of their attribute lacks, for each attribute that has one.

        The records of a block are valid, so ``unknown: root`` accepts these values.
        """
        found: Counter[str] = Counter()
        for column, categories in zip(self._columns, block.categories, strict=False):
            if count := column.count_unknown(block.values[:, column.number], categories):
                found[column.name] = count
        return found

    @property
    def is_large(self) -> bool:
        """Whether `drop_unused` would drop codes."""
        return any(column.is_large for column in self._columns)

    def drop_unused(self, held: Float64Matrix) -> None:
        """Drop codes that no held record has, of attributes with many codes.

        Parameters
        ----------
        held : ndarray of float64, shape (n, d)
            Values of all records whose published values are not computed yet, with codes.
        """
        for column in self._columns:
            if column.is_large:
                column.drop_unused(held[:, column.number])


class _AttributeCodes:
    """The categories of one attribute."""

    def __init__(self, number: int, attribute: Attribute, tree: CategoryTree) -> None:
        self.number, self.name = number, attribute.name
        self._fixed = tree.leaf_count
        self.texts = dict(enumerate(tree.leaf_texts))
        self._codes = {text: code for code, text in self.texts.items()}
        self._next = self._fixed
        self._limit = self._fixed + FEWEST_TO_DROP

    def count_unknown(self, numbers: Float64Vector, categories: Sequence[str]) -> int:
        """Return how many records have a category that is no leaf; 0 without a taxonomy."""
        if not self._fixed:
            return 0
        unknown = [i for i, text in enumerate(categories) if self._codes.get(text, self._fixed) >= self._fixed]
        return int(np.isin(numbers, unknown).sum()) if unknown else 0

    @property
    def is_large(self) -> bool:
        return len(self._codes) > self._limit

    def encode(self, numbers: Float64Vector, categories: Sequence[str]) -> Float64Vector:
        """Return the codes of records, given their numbers in the categories of their block; NaN stays."""
        if not len(categories):
            return numbers
        codes = np.array([self._code_of(text) for text in categories], np.float64)
        missing = np.isnan(numbers)
        indices: Int64Vector = np.where(missing, 0, numbers).astype(np.int64)
        return np.where(missing, np.nan, codes[indices])

    def _code_of(self, text: str) -> int:
        code = self._codes.get(text)
        if code is None:
            code, self._next = self._next, self._next + 1
            self._codes[text], self.texts[code] = code, text
        return code

    def drop_unused(self, held: Float64Vector) -> None:
        """Drop codes that no held record has. The number that stays is at most half of the next limit."""
        used = set(held[~np.isnan(held)].astype(np.int64).tolist())
        for text, code in [(text, code) for text, code in self._codes.items() if code >= self._fixed]:
            if code not in used:
                del self._codes[text], self.texts[code]
        self._limit = max(self._fixed + FEWEST_TO_DROP, 2 * len(self._codes))
