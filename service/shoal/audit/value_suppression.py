"""Whether ``l``, ``max_value_share`` or ``t`` may have been the reason why a record was suppressed.

Files do not show which clusters a stream has tried. A suppression is possible if some of the records that may have been
held form a set of at least k subjects that breaks a promise. If none of them does, every cluster of k subjects keeps
all promises, and the record could have been released. This is decided by counting; where it is not known, the
suppression counts as possible.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction

from shoal.audit.originals import Originals
from shoal.audit.protected_values import AuditedColumn
from shoal.policy import Policy

__all__ = ["BreakableValues"]


class BreakableValues:
    """Decides of sets of records whether clusters of them may break a promise.

    Parameters
    ----------
    policy : Policy
    originals : Originals
    """

    def __init__(self, policy: Policy, originals: Originals) -> None:
        self._policy, self._originals = policy, originals
        self._columns = [AuditedColumn(policy, attribute, originals.released) for attribute in policy.protected]

    def can_be_broken(self, indices: Sequence[int]) -> bool:
        """Whether some set of at least k subjects among these usable records may break a promise.

        True for ``t``, and for entropy and recursive l-diversity. Cost: O(number of records) per attribute.
        """
        rule = self._policy.diversity
        if self._policy.t is not None or (rule is not None and rule.kind != "distinct"):
            return True
        return any(self._can_break(column, indices) for column in self._columns)

    def _can_break(self, column: AuditedColumn, indices: Sequence[int]) -> bool:
        keys = list(map(column.key, self._originals.unchanged_of(indices)))
        own: defaultdict[str, set[int]] = defaultdict(set)
        for key, subject in zip(keys, self._originals.subjects[list(indices)].tolist(), strict=True):
            own[key].add(subject)
        k, rule, limit = self._policy.k, self._policy.diversity, self._policy.max_value_share
        if rule is not None and _can_have_few(list(map(len, own.values())), k, int(rule.l)):
            return True
        # The worst set has all records of one value, and as few others as k subjects need.
        return limit is not None and any(
            count > Fraction(limit) * (count + max(0, k - len(own[key]))) for key, count in Counter(keys).items()
        )


def _can_have_few(subjects: Sequence[int], k: int, least: int) -> bool:
    """Whether fewer values than the least number may be those of k subjects; ``subjects``: how many have each value."""
    return sum(sorted(subjects, reverse=True)[: least - 1]) >= k
