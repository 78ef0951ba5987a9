"""Checks options of a policy on the recomputed clusters: ``per_subject``, ``l``, ``max_value_share`` and ``t``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shoal.audit.clusters import RecomputedCluster
from shoal.audit.confidential import ValueClass, check_values
from shoal.audit.originals import Originals
from shoal.audit.verdict import CheckCounter, counted
from shoal.policy import PerSubject, Policy

__all__ = ["check_options", "unobservable_options"]


def check_options(policy: Policy, originals: Originals, clusters: Sequence[RecomputedCluster]) -> list[CheckCounter]:
    """Check the options that the policy sets.

    Returns
    -------
    list of CheckCounter
        ``releases`` (for ``per_subject``), and those of `check_values`.
    """
    checks = []
    if policy.per_subject is not None:
        checks.append(_check_per_subject(policy.per_subject, originals, clusters))
    if policy.protects_values:
        classes = [ValueClass(cluster.label, cluster.unchanged) for cluster in clusters]
        checks += check_values(policy, originals, classes)
    return checks


def unobservable_options(policy: Policy, *, is_end_known: bool) -> list[str]:
    """Return what files cannot show about the options of a policy.

    ``is_end_known``: whether it was checked how many subjects were held at the end of the input.
    """
    if policy.min_population is None or (is_end_known and (policy.stream is None or policy.stream.max_delay_s is None)):
        return []
    causes = "a time limit" if is_end_known else "a time limit or the end of the input"
    return [f"whether {causes} released records while fewer than {policy.min_population} subjects were held"]


def _check_per_subject(option: PerSubject, originals: Originals, clusters: Sequence[RecomputedCluster]) -> CheckCounter:
    claim = (
        f"at most {counted(option.max, 'record')} of one subject {'was' if option.max == 1 else 'were'} released from "
        f"each window of {counted(option.window, 'offset')}"
    )
    check = CheckCounter("releases", claim, "window")
    counts: Counter[tuple[int, int, int]] = Counter()
    for cluster in clusters:
        for index in cluster.members:
            window = int(originals.offsets[index]) // option.window
            counts[cluster.partition, window, int(originals.subjects[index])] += 1
    for (partition, window, _), count in sorted(counts.items()):
        check.expect(count <= option.max, f"{partition}/{window}" if partition else window)
    check.worst = max(counts.values(), default=None)
    return check
