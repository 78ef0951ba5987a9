"""Codes and bins of the values of protected attributes, for one partition.

A block numbers its values by itself (`ProtectedValues`). Records of different blocks meet in one cluster, so the
pipeline gives each value one code for as long as a record with it is held. Its bin is the place of the value in the
reference of the policy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.arrays import Int64Matrix, Int64Vector
from shoal.errors import GuaranteeError
from shoal.formats import Block, Key, ReferenceBins
from shoal.policy import Policy
from shoal.protection.diversity import (
    DISTINCT,
    ENTROPY,
    EQUAL,
    HIERARCHICAL,
    ORDERED,
    RECURSIVE,
    DiversityRule,
    LDiversity,
    ValueReference,
    build_diversity_rule,
)

__all__ = ["ValueIndex", "l_diversity_of", "value_reference_of"]

FEWEST_TO_DROP = 512
"""Values of an attribute from which codes without a held record are dropped."""

_KINDS = {"distinct": DISTINCT, "entropy": ENTROPY, "recursive": RECURSIVE}
_DISTANCES = {"ordered": ORDERED, "equal": EQUAL, "hierarchical": HIERARCHICAL}


class ValueIndex:
    """Gives each value of the q protected attributes of a stream a code and a bin.

    Parameters
    ----------
    policy : Policy

    Attributes
    ----------
    rule : DiversityRule or None
        What each cluster must satisfy; None if the policy protects no values.
    has_bins : bool
        Whether clusters are compared with references.

    Notes
    -----
    Values are numbered in the order in which they are read, so codes differ after a restart; bins do not. No code is
    given twice. Memory: if `drop_unused` is called for each block, about `FEWEST_TO_DROP` values of each attribute, or
    as many as records are held.
    """

    def __init__(self, policy: Policy) -> None:
        self.has_bins = policy.t is not None
        references = [ReferenceBins(a, policy.missing_values) for a in policy.protected] if self.has_bins else []
        self.rule = _rule_of(policy, references) if policy.protects_values else None
        self._columns = [_ValueCodes(references[i] if self.has_bins else None) for i in range(len(policy.protected))]

    def __len__(self) -> int:
        return len(self._columns)

    def encode(self, block: Block) -> Int64Matrix:
        """Return codes, and behind them bins, of the records of a block: shape (n, 2 q).

        Bins are 0 where there are no references, and `NO_BIN` for a value that the reference cannot place: decoders
        refuse its record, and so does the clusterer.

        Raises
        ------
        GuaranteeError
            The block does not have the values of the protected attributes.
        """
        encoded = np.zeros((len(block), 2 * len(self)), np.int64)
        if not encoded.size:
            return encoded
        if block.protected is None:
            raise GuaranteeError("a block lacks the values of the protected attributes")
        numbers, keys = block.protected
        for column, codes in enumerate(self._columns):
            found = codes.encode(keys[column])
            encoded[:, [column, len(self) + column]] = found[numbers[:, column]]
        return encoded

    def split(self, encoded: Int64Matrix) -> tuple[Int64Matrix | None, Int64Matrix | None]:
        """Return codes (n, q) and bins (n, q) as the clusterer takes them; None for what it does not need."""
        if self.rule is None:
            return None, None
        return encoded[:, : len(self)], encoded[:, len(self) :] if self.has_bins else None

    @property
    def is_large(self) -> bool:
        """Whether `drop_unused` would drop codes."""
        return any(column.is_large for column in self._columns)

    def drop_unused(self, held: Int64Matrix) -> None:
        """Drop codes that no held record has, of attributes with many codes.

        Parameters
        ----------
        held : ndarray of int64, shape (n, 2 q)
            As `encode` returned them, of all records that are not decided.
        """
        for number, column in enumerate(self._columns):
            if column.is_large:
                column.drop_unused(held[:, number])


class _ValueCodes:
    """The values of one attribute."""

    def __init__(self, bins: ReferenceBins | None) -> None:
        self._bins = bins
        self._codes: dict[Key, tuple[int, int]] = {}
        self._next = 0
        self._limit = FEWEST_TO_DROP

    @property
    def is_large(self) -> bool:
        return len(self._codes) > self._limit

    def encode(self, keys: Sequence[Key]) -> Int64Matrix:
        """Return code and bin of each key, shape (m, 2)."""
        return np.array([self._code_of(key) for key in keys], np.int64).reshape(-1, 2)

    def _code_of(self, key: Key) -> tuple[int, int]:
        found = self._codes.get(key)
        if found is None:
            # Decoders have refused the records with values that have no bin; a block keeps their keys.
            number = 0 if self._bins is None else self._bins.bin_of(key)
            found, self._next = (self._next, number), self._next + 1
            self._codes[key] = found
        return found

    def drop_unused(self, held: Int64Vector) -> None:
        """Drop codes that no held record has. The number that stays is at most half of the next limit."""
        used = set(held.tolist())
        self._codes = {key: found for key, found in self._codes.items() if found[0] in used}
        self._limit = max(FEWEST_TO_DROP, 2 * len(self._codes))


def l_diversity_of(policy: Policy) -> LDiversity | None:
    """Return the l-diversity of a policy, for the kernels."""
    diversity = policy.diversity
    return None if diversity is None else LDiversity(_KINDS[diversity.kind], diversity.l, diversity.c or 0.0)


def value_reference_of(bins: ReferenceBins) -> ValueReference:
    """Return a reference, for the kernels."""
    return ValueReference(_DISTANCES[bins.distance], bins.shares, bins.paths)


def _rule_of(policy: Policy, references: Sequence[ReferenceBins]) -> DiversityRule:
    """Return the constraints of a policy on its protected attributes, for the kernels."""
    return build_diversity_rule(
        [value_reference_of(reference) for reference in references],
        l=l_diversity_of(policy),
        max_value_share=policy.max_value_share,
        t=policy.t,
    )
