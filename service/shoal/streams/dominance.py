"""The p % rule: no subject's contribution to a cluster may be estimated too closely by another subject ([1]_, [2]_).

A subject's contribution is the sum of the absolute differences between its amounts and a reference point that is
publicly known. The second largest contributor can subtract its own contribution from the cluster's total. The rule
requires that the contributions of all others are at least p % of the largest one.

The rule's kernel, `dominating_subject`, and the check of `InvariantChecker`, `is_dominated`, are independent of each
other.

References
----------
.. [1] L. H. Cox, "Linear sensitivity measures in statistical disclosure control", Journal of Statistical Planning and
   Inference 5(2), 1981. doi:10.1016/0378-3758(81)90025-4
.. [2] A. Hundepool et al., "Statistical Disclosure Control", Wiley 2012, chapter 4. doi:10.1002/9781118348239
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Vector
from shoal.kernels.jit import njit_inline
from shoal.policy.policy import Policy
from shoal.policy.schema import Scale

__all__ = ["NO_DOMINANCE", "Dominance", "dominance_of", "dominating_subject", "is_dominated"]

TOLERANCE = 1e-9
"""Relative margin of the kernel. It exceeds all rounding errors, so a cluster in doubt is not released."""

SLACK = 1e-12
"""Relative rounding error that the check of released clusters accepts; a thousandth of the kernel's margin."""


class Dominance(NamedTuple):
    """Parameters of the p % rule.

    Attributes
    ----------
    share : float
        p / 100; 0 switches the rule off.
    references : float64 (a, R)
        Publicly known reference points of each amount, in its units.
    """

    share: float
    references: Float64Matrix


NO_DOMINANCE = Dominance(0.0, np.zeros((0, 0)))
"""No p % rule."""


def dominance_of(policy: Policy) -> Dominance | None:
    """Return the p % rule of a policy, or None if it has none.

    It has a row for each numeric quasi-identifier, in their order: categories, ranks and times are no contributions.
    The reference points of an attribute are its bounds, and zero where it lies between them: the values at which most
    records may be expected to lie.
    """
    if policy.dominance is None:
        return None
    references = []
    for attribute in policy.quasi_identifiers:
        if attribute.scale is not Scale.NUMERIC:
            continue
        low, high = attribute.bounds or (0.0, 0.0)  # a stream's policy declares bounds
        references.append([low, high, 0.0 if low < 0 < high else low])
    return Dominance(policy.dominance / 100, np.array(references).reshape(-1, 3))


def is_dominated(rule: Dominance, amounts: Float64Matrix, subjects: Int64Vector) -> bool:
    """Whether a subject's contribution to a cluster violates the p % rule; computed independently of the rule's kernel.

    Parameters
    ----------
    rule : Dominance
        The required protection.
    amounts : ndarray of float64, shape (n, a)
        Amounts of the members.
    subjects : ndarray of int64, shape (n,)
        Subject codes of the members.

    Returns
    -------
    bool
        True if the cluster must not be released.
    """
    _, numbers = np.unique(subjects, return_inverse=True)
    contributions = np.zeros((numbers.max() + 1, *rule.references.shape))
    np.add.at(contributions, numbers, np.abs(amounts[:, :, None] - rule.references))
    ranked = np.sort(contributions, axis=0)
    rest, largest = ranked[:-2].sum(axis=0), ranked[-1]
    return bool((rest < rule.share * largest * (1 - SLACK)).any())


@njit_inline
def dominating_subject(
    amounts: Float64Matrix,
    members: Int64Vector,
    subject_numbers: Int64Vector,
    counts: Int64Vector,
    totals: Float64Vector,
    rule: Dominance,
) -> int:
    """Return the number of a subject whose contribution violates the p % rule, or -1.

    Parameters
    ----------
    amounts : ndarray of float64, shape (a, held)
        Amounts of the held records.
    members : ndarray of int64, shape (m,)
        Records of the cluster; -1 for a removed one.
    subject_numbers : ndarray of int64, shape (m,)
        Number of the subject of each member.
    counts : ndarray of int64, shape (S,)
        Members of each subject.
    totals : ndarray of float64
        Scratch, one entry per subject.
    rule : Dominance
        The required protection.

    Returns
    -------
    int
        The subject found for the first amount and reference point that are violated; of equal contributions the one
        added last.
    """
    for row in range(rule.references.shape[0]):
        for column in range(rule.references.shape[1]):
            totals[: counts.size] = 0.0
            for member in range(members.size):
                if members[member] >= 0:
                    totals[subject_numbers[member]] += abs(amounts[row, members[member]] - rule.references[row, column])
            first, second = _two_largest(totals[: counts.size])
            if _is_disclosed(totals[: counts.size], first, second, rule.share):
                return first
    return -1


@njit_inline
def _two_largest(totals: Float64Vector) -> tuple[int, int]:
    """Return the indices of the largest and the second largest of two or more values, of equal ones the last."""
    first, second = 0, -1
    for subject in range(1, totals.size):
        if totals[subject] >= totals[first]:
            first, second = subject, first
        elif second < 0 or totals[subject] >= totals[second]:
            second = subject
    return first, second


@njit_inline
def _is_disclosed(totals: Float64Vector, first: int, second: int, share: float) -> bool:
    """Whether the other contributions hide the largest one too little; False if all contributions are 0."""
    rest = 0.0  # summed directly, because subtracting from the total would lose digits
    for subject in range(totals.size):
        if subject not in (first, second):
            rest += totals[subject]
    largest = totals[first]
    return bool(largest > 0.0 and rest < share * largest * (1.0 + TOLERANCE))
