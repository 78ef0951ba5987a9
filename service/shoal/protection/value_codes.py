"""Codes and bins of the values of protected attributes, for one partition; each block numbers its values by itself."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from shoal.arrays import Int64Matrix
from shoal.errors import GuaranteeError
from shoal.formats import Block, ReferenceBins
from shoal.policy import Policy
from shoal.protection.diversity import (
    DISTINCT,
    ENTROPY,
    EQUAL,
    HIERARCHICAL,
    ORDERED,
    RECURSIVE,
    LDiversity,
    ValueReference,
    build_diversity_rule,
)

_KINDS = {"distinct": DISTINCT, "entropy": ENTROPY, "recursive": RECURSIVE}
_DISTANCES = {"ordered": ORDERED, "equal": EQUAL, "hierarchical": HIERARCHICAL}


class ValueIndex:
    """Gives each value of the q protected attributes of a stream a code and a bin; ``rule`` is for clusters.

    Values are numbered in the order in which they are read, so codes differ after a restart; bins do not. A value
    keeps its code while a record with it is held: at most delta records arrive in that time (`RecentCodes`).
    """

    def __init__(self, policy: Policy) -> None:
        self._has_bins = policy.t is not None
        self._references = [ReferenceBins(a, policy.missing_values) for a in policy.protected] if self._has_bins else []
        self.rule = build_diversity_rule(
            [value_reference_of(reference) for reference in self._references],
            l=l_diversity_of(policy),
            max_value_share=policy.max_value_share,
            t=policy.t,
        )
        self._codes = [RecentCodes(policy.require_stream().delta) for _ in policy.protected]

    def encode(self, block: Block) -> Int64Matrix:
        """Return codes, and behind them bins, of the next records: shape (n, 2 q).

        Bins are 0 where there are no references, and `NO_BIN` for a value that the reference cannot place.
        """
        if block.protected is None:
            raise GuaranteeError("a block lacks the values of the protected attributes")
        encoded = np.zeros((len(block), 2 * len(self._codes)), np.int64)
        numbers, keys = block.protected
        for column, codes in enumerate(self._codes):
            own = np.array([codes.code_of(key) for key in keys[column]], np.int64)
            encoded[:, column] = own[numbers[:, column]]
            if self._has_bins:
                # Decoders have refused the records with values that have no bin; a block keeps their keys.
                bins = np.array([self._references[column].bin_of(key) for key in keys[column]], np.int64)
                encoded[:, len(self._codes) + column] = bins[numbers[:, column]]
            codes.remember(len(block))
        return encoded

    def split(self, encoded: Int64Matrix) -> tuple[Int64Matrix, Int64Matrix | None]:
        """Return codes (n, q) and bins (n, q) as the clusterer takes them; no bins without references."""
        count = len(self._codes)
        return encoded[:, :count], encoded[:, count:] if self._has_bins else None


class RecentCodes:
    """Gives each key a code, in the order of first occurrence; kept for at least ``delta`` records after the last one.

    Codes are never reused. Memory: the keys of 2 delta records and two blocks.
    """

    def __init__(self, delta: int) -> None:
        self._delta = delta
        self._recent: dict[Hashable, int] = {}
        self._older: dict[Hashable, int] = {}
        self._seen = self._next = 0

    def code_of(self, key: Hashable) -> int:
        """Return the code of a key."""
        code = self._recent.get(key)
        if code is None:
            code = self._older.get(key, self._next)
            self._next += code == self._next
            self._recent[key] = code
        return code

    def remember(self, count: int) -> None:
        """Count accepted records. Keys without an occurrence among the last delta records are dropped eventually."""
        self._seen += count
        if self._seen > self._delta:
            self._recent, self._older, self._seen = {}, self._recent, 0


def l_diversity_of(policy: Policy) -> LDiversity | None:
    """Return the l-diversity of a policy, for the kernels."""
    diversity = policy.diversity
    return None if diversity is None else LDiversity(_KINDS[diversity.kind], diversity.l, diversity.c or 0.0)


def value_reference_of(bins: ReferenceBins) -> ValueReference:
    """Return a reference, for the kernels."""
    return ValueReference(_DISTANCES[bins.distance], bins.shares, bins.paths)
