"""Measures a judged release for its report: plain numbers and texts, which the page only shows.

Nothing of a single record is in them. Counts of records and people are coarse, and cells have at least k people (see
`cells`). What the judge says of places in the files is left out, and so is what it measures of one person.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.audit.fields import FIELD_SEPARATOR
from shoal.audit.measures import known_classes, linked_share, mean_of_fewest_values
from shoal.audit.originals import UNUSABLE
from shoal.audit.scales import NO_VALUE
from shoal.audit.verdict import Check, Finding, Verdict
from shoal.audit.verify import JudgedRelease
from shoal.policy import Policy
from shoal.reports.cells import Int64Vector, coarse, in_words, share, without_counts
from shoal.reports.distributions import correlations, distributions
from shoal.reports.wording import WARNINGS, fields_in_words, promises

SIZES = 12  # most bars of the histogram of cluster sizes
_OF_ONE_PERSON = {"share", "releases"}
"""Checks whose worst value is that of one person."""
_PEOPLE_UNITS = {"row", "record", "reference", "window"}
_REASON = re.compile("[a-z_]{1,40}")


def report_of(policy: Policy, judged: JudgedRelease, *, is_table: bool = False) -> dict[str, Any]:
    """Return every number and text of a report, as plain values for JSON. Cost: O(n d log n) time."""
    k, verdict = policy.k, judged.verdict
    return {
        "verdict": {
            "outcome": verdict.outcome,
            "sentence": _with_coarse_counts(verdict, k).headline(lambda count: in_words(count, k)),
        },
        "policy": {
            "fingerprint": policy.fingerprint,
            "k": k,
            "promises": list(promises(policy, is_table=is_table)),
            "fields": fields_in_words(policy),
        },
        "counts": _counts(judged, k),
        "clusters": _clusters(policy, judged),
        "risk": _risk(judged, k) | _linkage(policy, judged),
        "attributes": distributions(judged, k),
        "correlations": correlations(judged),
        "judge": {
            "checks": [_check(check, k) for check in verdict.checks],
            "causes": [without_counts(cause.line(), k) for cause in verdict.causes],
            "warnings": [_warning(finding) for finding in verdict.warnings],
            "undecided": [without_counts(text, k) for text in verdict.undecided],
            "claimed": [without_counts(text, k) for text in verdict.claimed],
            "not_examined": [*verdict.not_examined, *_unsaid(judged, k)],
        },
    }


def _with_coarse_counts(verdict: Verdict, k: int) -> Verdict:
    """Return the verdict with the share of records left out made of coarse counts, or without it.

    Its number of records is not below that of the released rows, also where it is rounded.
    """
    worth = verdict.worth
    if worth is None:
        return verdict
    left_out = None if worth.left_out is None else share(round(worth.left_out * worth.records), worth.records, k)
    above = (worth.rows // k + 1) * k
    records = worth.records if worth.records == worth.rows else max(worth.records, above)
    return replace(verdict, worth=replace(worth, left_out=left_out, records=records))


def _counts(judged: JudgedRelease, k: int) -> dict[str, Any]:
    counts, worth = judged.verdict.counts, judged.verdict.worth
    found: dict[str, Any] = {
        "records": coarse(counts["records"], k),
        "released_rows": counts["rows"],
        "people": None if worth is None else coarse(worth.people, k),
        "clusters": counts["clusters"],
        "suppressed": coarse(counts["suppressed"], k),
        "refused": coarse(counts["unusable"], k),
        "held": coarse(counts["held"], k),
        "dropped": coarse(counts.get("dropped"), k),
        "stated": {},
    }
    for name in ("suppressed", "quarantined"):
        stated = (judged.summary or {}).get(name)
        if isinstance(stated, Mapping):
            found["stated"][name] = {
                reason: coarse(int(count), k)
                for reason, count in stated.items()
                if _REASON.fullmatch(str(reason)) and isinstance(count, int) and count >= 0
            }
    return found


def _clusters(policy: Policy, judged: JudgedRelease) -> dict[str, Any]:
    """Return the sizes of the clusters in people, and what was reached of l and t."""
    people = [people for people, _ in _known_sizes(judged)]
    checks = {check.name: check for check in judged.verdict.checks}
    rule = policy.diversity
    promised = {"diversity": rule and rule.l, "closeness": policy.t, "value_share": policy.max_value_share}
    return {
        "are_known": judged.clusters is not None,
        "sizes": _histogram(people, policy.k),
        "reached": [
            {"name": name, "promised": limit, "reached": checks[name].worst, "status": checks[name].status}
            for name, limit in promised.items()
            if limit is not None and name in checks
        ],
    }


def _known_sizes(judged: JudgedRelease) -> list[tuple[int, int]]:
    """Return people and records of each cluster; none if the clusters are not known."""
    clusters = [] if judged.clusters is None else judged.clusters.clusters
    subjects = judged.originals.subjects
    return [(len(np.unique(subjects[one.members])), len(one.members)) for one in clusters]


def _histogram(sizes: list[int], k: int) -> list[dict[str, Any]]:
    """Return how many clusters have how many people, in at most `SIZES` ranges; those below k are one range."""
    if not sizes:
        return []
    most = max(sizes)
    step = max(1, -(-(most - k + 1) // SIZES))
    counts = Counter(-1 if size < k else (size - k) // step for size in sizes)
    found = []
    for place, count in sorted(counts.items()):
        low = k + place * step
        label = f"below {k}" if place < 0 else str(low) if step == 1 else f"{low} to {low + step - 1}"
        found.append({"people": label, "clusters": coarse(count, k) if place < 0 else count})
    return found


def _risk(judged: JudgedRelease, k: int) -> dict[str, Any]:
    """Return what an attacker can hope for who knows quasi-identifiers, before and after the release.

    A prosecutor knows that a person is in the release and finds the cluster, a journalist only the equal rows of the
    whole release; a marketer links all records, and is right for one row in each group of equal rows.
    """
    combinations, people = _combinations(judged)
    sizes = _known_sizes(judged)
    rows = [row for part in judged.release.by_partition.values() for row in part.quasi if NO_VALUE not in row]
    groups = Counter(rows)
    by_people = _people_of_equal_rows(judged)
    alike = list(by_people.values()) or list(groups.values())
    unique_before = unique_records(combinations, people)
    unique_share = share(unique_before, len(people), k)
    unique_after = sum(count == 1 for count in groups.values())
    records, smallest = sum(count for _, count in sizes), min((size for size, _ in sizes), default=0)
    return {
        "prosecutor_largest": _two(1 / smallest) if smallest else None,
        "prosecutor_mean": _two(sum(count / size for size, count in sizes if size) / records) if records else None,
        "journalist_largest": _two(1 / min(alike)) if alike else None,
        "journalist_unit": "people" if by_people else "rows",
        "marketer": _two(len(groups) / len(rows)) if rows else None,
        "marketer_before": _marketer_before(combinations, people, k),
        "unique_before": coarse(unique_before, k),
        "unique_before_share": None if unique_share is None else _two(unique_share),
        "unique_after": coarse(unique_after, k),
        "single_value": {
            name.removeprefix("single_value_share."): _two(value)
            for name, value in judged.verdict.measures.items()
            if name.startswith("single_value_share.") and value is not None
        },
    }


def _linkage(policy: Policy, judged: JudgedRelease) -> dict[str, float | None]:
    """Return ``dld`` and ``l_avg`` as the summary of a table has them; None if the clusters are not known."""
    clusters = [] if judged.clusters is None else judged.clusters.clusters
    linked = linked_share(judged.originals, clusters, judged.published)
    values = mean_of_fewest_values(policy, judged.originals, known_classes(judged.clusters))
    return {"dld": None if linked is None else _two(linked), "l_avg": None if values is None else _two(values)}


def _people_of_equal_rows(judged: JudgedRelease) -> dict[str, int]:
    """Return the people behind equal rows of the whole release; none if the clusters are not known."""
    found: dict[str, set[int]] = {}
    for cluster in [] if judged.clusters is None else judged.clusters.clusters:
        found.setdefault(cluster.quasi, set()).update(judged.originals.subjects[cluster.members].tolist())
    return {text: len(people) for text, people in found.items()}


def _combinations(judged: JudgedRelease) -> tuple[Int64Vector, Int64Vector]:
    """Return a code for the quasi-identifiers of each usable record of the original, and its person."""
    usable = judged.originals.subjects != UNUSABLE
    return codes_of_rows(judged.originals.values[usable]), judged.originals.subjects[usable]


def codes_of_rows(values: npt.NDArray[np.float64]) -> Int64Vector:
    """Return a code for each row, which equal rows share."""
    codes = np.zeros(len(values), np.int64)
    for column in values.T:
        own = np.unique(column, return_inverse=True)[1].astype(np.int64)
        codes = np.unique(codes * (int(own.max(initial=0)) + 1) + own, return_inverse=True)[1].astype(np.int64)
    return codes


def _people_by_combination(combinations: Int64Vector, people: Int64Vector) -> npt.NDArray[np.intp]:
    pairs = np.unique(np.stack([combinations, people]), axis=1)
    return np.bincount(pairs[0], minlength=1)


def unique_records(combinations: Int64Vector, people: Int64Vector) -> int:
    """Return the number of records with quasi-identifiers that no other person has."""
    if not len(people):
        return 0
    return int(np.count_nonzero(_people_by_combination(combinations, people)[combinations] == 1))


def _marketer_before(combinations: Int64Vector, people: Int64Vector, k: int) -> float | None:
    found = share(len(np.unique(combinations)), len(people), k)
    return None if found is None else _two(min(found, 1.0))


def _two(value: float) -> float:
    """Return a number with two significant digits."""
    return float(f"{value:.2g}")


def _check(check: Check, k: int) -> dict[str, Any]:
    is_of_people = check.unit in _PEOPLE_UNITS
    return {
        "name": check.name,
        "claim": check.claim,
        "status": check.status,
        "unit": check.unit,
        "examined": coarse(check.examined, k) if is_of_people else check.examined,
        "failed": check.failed if check.unit == "field" else coarse(check.failed, k),
        "worst": None if check.worst is None or check.name in _OF_ONE_PERSON else float(f"{check.worst:.4g}"),
        "note": without_counts(check.note, k),
    }


def _warning(finding: Finding) -> dict[str, Any]:
    return {"code": finding.code, "fields": list(finding.fields), "text": WARNINGS[finding.code]}


def _unsaid(judged: JudgedRelease, k: int) -> Iterator[str]:
    """Yield what this report cannot say of the release."""
    subjects = judged.originals.subjects
    if len(np.unique(subjects[subjects != UNUSABLE])) < k:
        yield "the distributions, because the original has fewer than k people"
    if judged.clusters is None:
        yield (
            "how many people each cluster has, the risk by cluster and the loss, because clusters with equal rows "
            "cannot be told apart without evidence; give the evidence of the run (--evidence)"
        )
    if not judged.summary:
        yield "why records were suppressed or refused, because only the summary of the run says so (--summary)"
    width = len(judged.published)
    if any(
        text.count(FIELD_SEPARATOR) != width - 1 for part in judged.release.by_partition.values() for text in part.quasi
    ):
        yield "the rows that cannot be read: they are in no distribution"
    yield "what an attacker knows besides quasi-identifiers"
