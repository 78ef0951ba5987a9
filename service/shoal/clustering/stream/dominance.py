"""Dominance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Vector
from shoal.clustering.numba.jit import njit_in_place
from shoal.policy.resolved import Policy

__all__ = ["NO_DOMINANCE", "Dominance", "dominance_of", "dominating_subject", "is_dominated"]

TOLERANCE = 1e-9
"""Sums of contributions are off by far less; in doubt a cluster does not leave."""

SLACK = 1e-12
"""What rounding may take from a sum that just suffices; the rule itself keeps a thousand times more."""


class Dominance(NamedTuple):
    """What is asked for: ``share`` = p / 100 (0: nothing), over a amounts of each record.

    ``references`` (a, R): points that everybody knows, from which contributions are counted.
    """

    share: float
    references: Float64Matrix


NO_DOMINANCE = Dominance(0.0, np.zeros((0, 0)))


def dominance_of(policy: Policy) -> Dominance | None:
    """Return what a policy asks for; None if nothing.

    Contributions are counted from the bounds of an attribute, and from zero where it lies between them: the points of
    which everybody knows that most records may lie there.
    """
    if policy.dominance is None:
        return None
    references = []
    for attribute in policy.quasi_identifiers:
        low, high = attribute.bounds or (0.0, 0.0)  # a stream's are declared
        references.append([low, high, 0.0 if low < 0 < high else low])
    return Dominance(policy.dominance / 100, np.array(references))


def is_dominated(rule: Dominance, amounts: Float64Matrix, subjects: Int64Vector) -> bool:
    """Whether somebody's contribution to one cluster (n records) could be worked out; counts apart from the rule.

    Parameters
    ----------
    rule : Dominance
        What was asked for.
    amounts : ndarray of float64, shape (n, a)
        Of the members.
    subjects : ndarray of int64, shape (n,)
        Theirs.
    """
    _, people = np.unique(subjects, return_inverse=True)
    contributions = np.zeros((people.max() + 1, *rule.references.shape))
    np.add.at(contributions, people, np.abs(amounts[:, :, None] - rule.references))
    ranked = np.sort(contributions, axis=0)
    rest, largest = ranked[:-2].sum(axis=0), ranked[-1]
    return bool((rest < rule.share * largest * (1 - SLACK)).any())


@njit_in_place
def dominating_subject(
    amounts: Float64Matrix,
    members: Int64Vector,
    owners: Int64Vector,
    counts: Int64Vector,
    totals: Float64Vector,
    rule: Dominance,
) -> int:
    """Return the number of a subject whose contribution could be worked out too closely, or -1.

    ``amounts`` (a, held) of the held records, ``order`` the cluster (-1: handed back), ``owners`` its subjects by
    place, ``counts`` (subjects,) their records in it; ``totals`` is scratch, one per subject. Of several subjects the
    one of the first amount and reference is told, of equal ones the farthest.
    """
    for row in range(rule.references.shape[0]):
        for column in range(rule.references.shape[1]):
            totals[: counts.size] = 0.0
            for member in range(members.size):
                if members[member] >= 0:
                    totals[owners[member]] += abs(amounts[row, members[member]] - rule.references[row, column])
            first, second = _two_largest(totals[: counts.size])
            if _is_disclosed(totals[: counts.size], first, second, rule.share):
                return first
    return -1


@njit_in_place
def _two_largest(totals: Float64Vector) -> tuple[int, int]:
    """Return the places of the largest and the second largest of two or more, the farthest of equal ones."""
    first, second = 0, -1
    for owner in range(1, totals.size):
        if totals[owner] >= totals[first]:
            first, second = owner, first
        elif second < 0 or totals[owner] >= totals[second]:
            second = owner
    return first, second


@njit_in_place
def _is_disclosed(totals: Float64Vector, first: int, second: int, share: float) -> bool:
    """Whether the others leave the largest contribution open; not if nobody contributes anything."""
    rest = 0.0  # added up, and not what is left of the sum: that would lose its last digits
    for owner in range(totals.size):
        if owner not in (first, second):
            rest += totals[owner]
    largest = totals[first]
    return bool(largest > 0.0 and rest < share * largest * (1.0 + TOLERANCE))
