"""The p %-rule: what a policy asks for, and the count that is made again before a cluster leaves."""

from __future__ import annotations

from decimal import Decimal

import numpy as np

from shoal.kernel.arrays import Float64Matrix, Int64Vector
from shoal.kernel.dominance import Dominance
from shoal.policy.model import Policy

__all__ = ["NO_DOMINANCE", "dominance_of", "is_dominated"]

NO_DOMINANCE = Dominance(0.0, np.zeros((0, 0)), np.zeros((0, 0)))

SLACK = 1e-12
"""What rounding may take from a sum that just suffices; the rule itself keeps a thousand times more."""


def dominance_of(policy: Policy) -> Dominance | None:
    """Return what a policy asks for; None if nothing.

    Contributions are counted from the bounds of an attribute, and from zero where it lies between them: the points of
    which everybody knows that most records may lie there.
    """
    if policy.dominance is None:
        return None
    references, halves = [], []
    for attribute in policy.quasi_identifiers:
        low, high = attribute.bounds or (0.0, 0.0)  # a stream's are declared
        points = [low, high, 0.0 if low < 0 < high else low]
        step = attribute.grid()
        references.append(points)
        halves.append([float(step) / 2 if step and Decimal(repr(point)) % step == 0 else 0.0 for point in points])
    return Dominance(policy.dominance / 100, np.array(references), np.array(halves))


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
    is_open = rest < rule.share * largest * (1 - SLACK)
    is_told = ranked.sum(axis=0) >= rule.halves * len(subjects) * (1 + SLACK)
    return bool((is_open & is_told).any())
