"""The p %-rule: what a policy asks for, and the count that is made again before a cluster leaves."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Matrix, Int64Vector
from shoal.clustering.stream.dominance_kernel import Dominance
from shoal.policy.resolved import Policy

__all__ = ["NO_DOMINANCE", "dominance_of", "is_dominated"]

NO_DOMINANCE = Dominance(0.0, np.zeros((0, 0)))

SLACK = 1e-12
"""What rounding may take from a sum that just suffices; the rule itself keeps a thousand times more."""


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
