"""What a person should know of a release, though it breaks no check: findings in the order of their weight.

- ``identifier_copy``: a published field has the value of an identifier in more than 90 % of the records.
- ``other_person``: there is another identifier, each subject has one value of it, and counted by its values some
  cluster has fewer than k people. Then it may be the person, and the subject a visit, a device or an account.
- ``may_be_person``: as before, but many subjects share each value and resemble each other in no quasi-identifier. So do
  the patients of a family doctor, and the visits of a person if the quasi-identifiers belong to the visit.
- ``known_outside``: the name of a confidential field is that of a fact that others know of a person.
- ``left_out``, ``clipped``: large parts of the records were not released, or changed before.

The others are measured in `shoal.audit.measures`, or told by the summary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from shoal.audit.clusters import RecomputedClusters, equal_runs, members_of
from shoal.audit.fields import Int64Vector
from shoal.audit.measures import MIN_RECORDS
from shoal.audit.originals import UNUSABLE, Originals
from shoal.audit.summary import Losses
from shoal.audit.verdict import Finding, Worth, counted, percent
from shoal.policy import Policy

MAX_LEFT_OUT = 0.05  # a larger share of suppressed and refused records is a warning
MAX_CLIPPED = 0.01  # a larger share of values outside the bounds of their attribute is a warning
MIN_COPIES = 0.9  # a field with the value of an identifier in more of the records is a copy of it
MAX_SEVERAL = 0.05  # more subjects with several values of an identifier: it is no property of the subject
MIN_SHARED = 10  # from this mean number of subjects of a value on, they must resemble each other to be one person
MIN_ALIKE = 0.9  # so much smaller than among all is the difference of records of one person in some quasi-identifier
WEIGHTS = (
    *("identifier_copy", "other_person", "near_duplicate_subjects", "identifier_like", "known_outside"),
    *("known_together", "may_be_person", "left_out", "clipped", "unique_values", "order_of_arrival", "held", "summary"),
)
"""Codes of warnings; what weighs most is first."""
_KNOWN_WORDS = frozenset(
    (
        *("age", "birth", "birthdate", "birthday", "born", "dob", "sex", "gender", "race", "ethnicity", "nationality"),
        *("zip", "zipcode", "postcode", "postal", "city", "town", "county", "address", "street", "phone", "email"),
    )
)
"""Words in the names of fields that others know of a person."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def by_weight(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings in the order of their weight."""
    return tuple(sorted(findings, key=lambda finding: WEIGHTS.index(finding.code)))


def find_fields(policy: Policy, originals: Originals) -> Iterator[Finding]:
    """Yield what the fields of the original show without clusters."""
    tallies, usable = originals.tallies, originals.usable
    if tallies is None:
        return
    for (name, identifier), count in tallies.copies.items():
        if usable >= MIN_RECORDS and count > MIN_COPIES * usable:
            yield Finding(
                "identifier_copy",
                f"{name} is published unchanged and equals the identifier {identifier} in {percent(count / usable)} of "
                "the records",
                f"declare {name} as an identifier, and withdraw the release",
                {"records": count, "share": count / usable},
                (name, identifier),
            )
    for attribute in policy.confidential:
        words = {word.lower() for word in _WORD.findall(attribute.name)}
        if words & _KNOWN_WORDS and not attribute.publish_unchanged:
            yield Finding(
                "known_outside",
                f"{attribute.name} is published unchanged as confidential, and by its name others know it of a person",
                f"declare {attribute.name} as a quasi-identifier, or set publish_unchanged: true if nobody knows it",
                fields=(attribute.name,),
            )
    for attribute in policy.quasi_identifiers:
        count = tallies.clipped[attribute.name]
        if count > MAX_CLIPPED * usable:
            yield Finding(
                "clipped",
                f"{counted(count, 'value')} of {attribute.name} ({percent(count / usable)}) were outside its bounds; "
                "they count as the bound",
                f"widen the bounds of {attribute.name}, or set out_of_bounds: quarantine to refuse such records",
                {"values": count, "share": count / usable},
                (attribute.name,),
            )


def find_other_people(policy: Policy, originals: Originals, found: RecomputedClusters | None) -> Iterator[Finding]:
    """Yield each identifier that may be the person, and by which some cluster has fewer than k people.

    Cost: O(n log n) per identifier.
    """
    if originals.tallies is None or found is None or not found.clusters:
        return
    usable = np.flatnonzero(originals.subjects != UNUSABLE)
    members = members_of(found.clusters)
    places = np.repeat(np.arange(len(found.clusters)), [len(cluster.members) for cluster in found.clusters])
    for name, hashes in originals.tallies.people.items():
        people = np.full(len(originals), -1)
        people[usable] = _people(np.frombuffer(hashes, np.int64))
        is_known = np.zeros(len(originals), np.bool_)
        is_known[usable] = np.frombuffer(hashes, np.int64) != 0
        subjects, own = originals.subjects[is_known], people[is_known]
        several = _pairs(subjects, own)[0].size - np.unique(subjects).size
        if np.unique(own).size < policy.k or several > MAX_SEVERAL * np.unique(subjects).size:
            continue
        counts = np.bincount(_pairs(places, people[members])[0], minlength=len(found.clusters))
        below = int(np.count_nonzero(counts < policy.k))
        if below:
            is_shared = _is_shared_by_strangers(policy, originals.values[is_known], subjects, own)
            yield _other_person(policy, name, len(counts), below, int(counts.min()), is_shared=is_shared)


def _other_person(policy: Policy, name: str, clusters: int, below: int, smallest: int, *, is_shared: bool) -> Finding:
    subject = "every record" if policy.subject is None else policy.subject.name
    fewer = f"{below} of {counted(clusters, 'cluster')} have fewer than {policy.k} people, the smallest {smallest}"
    if is_shared:
        code, text = "may_be_person", f"if {name} names a person, and not a group as a doctor does, {fewer}"
    else:
        code, text = "other_person", f"counted by the identifier {name} instead of {subject}, {fewer}"
    remedy = f"if {name} tells persons apart, set subject: true at it and release again"
    return Finding(code, text, remedy, {"k": smallest, "clusters": below}, (name,))


def find_left_out(records: int, rows: int, refused: int, held: int) -> Iterator[Finding]:
    """Yield a finding if too many records were neither released nor are held."""
    out = records - rows - held
    if out > MAX_LEFT_OUT * records:
        refused = min(refused, out)
        remedy = "a larger delta or a smaller k suppresses fewer; shoal check POLICY -i FILE tries a sample"
        if 2 * refused > out:
            remedy = "correct the policy or the input: the last line of the run names the fields of refused records"
        yield Finding(
            "left_out",
            f"{percent(out / records)} of the records are not in the release: {out - refused} suppressed, {refused} "
            "refused, so it need not show what the original shows",
            remedy,
            {"suppressed": out - refused, "refused": refused, "share": out / records},
        )


def worth_of(
    policy: Policy,
    originals: Originals,
    found: RecomputedClusters | None,
    *,
    rows: int,
    held: int | None,
    losses: Losses | None,
) -> Worth:
    """Return what the release is worth; ``held``: None if it is not known what may still be released."""
    people, worst, rule = None, None, policy.diversity
    if found is not None:
        people = int(np.unique(originals.subjects[found.is_released]).size)
    if losses is not None and losses.mean is not None:
        known = {name: loss for name, loss in losses.by_attribute.items() if loss is not None}
        worst = max(known, key=lambda name: known[name])
    is_share_known = held is not None and originals.records > 0
    return Worth(
        k_promised=policy.k,
        k=None if found is None else found.fewest_subjects,
        people=people,
        rows=rows,
        records=originals.records,
        left_out=max(originals.records - rows - (held or 0), 0) / originals.records if is_share_known else None,
        mean_loss=None if losses is None else losses.mean,
        worst_attribute=worst,
        worst_loss=None if worst is None or losses is None else losses.by_attribute[worst],
        l=None if rule is None or rule.kind == "recursive" else float(rule.l),
        t=policy.t,
    )


def _people(hashes: Int64Vector) -> Int64Vector:
    """Return a code for each person; a record without the identifier is a person of its own."""
    codes: Int64Vector = np.unique(hashes, return_inverse=True)[1].astype(np.int64)
    is_missing = hashes == 0
    codes[is_missing] = len(hashes) + np.flatnonzero(is_missing)
    return codes


def _is_shared_by_strangers(
    policy: Policy, values: npt.NDArray[np.float64], subjects: Int64Vector, people: Int64Vector
) -> bool:
    """Whether many subjects have each value, and differ in every quasi-identifier as others do."""
    first = np.unique(subjects, return_index=True)[1]
    first = first[np.argsort(people[first], kind="stable")]
    if len(first) < MIN_SHARED * np.unique(people[first]).size:
        return False
    is_pair = np.diff(people[first]) == 0
    for attribute, column in zip(policy.quasi_identifiers, values[first].T, strict=False):
        is_known = ~np.isnan(column)
        known = column[is_known]
        apart = np.abs(np.diff(column))[is_pair & is_known[1:] & is_known[:-1]]
        if attribute.is_nominal:
            among_all = 1 - float(np.sum((np.unique(known, return_counts=True)[1] / max(known.size, 1)) ** 2))
            apart = (apart > 0).astype(np.float64)
        else:  # the mean difference of two records (Gini)
            ranks = 2 * np.arange(known.size) - known.size + 1
            among_all = float(2 * np.sum(ranks * np.sort(known)) / max(known.size, 1) ** 2)
        if apart.size and among_all > 0 and float(apart.mean()) <= (1 - MIN_ALIKE) * among_all:
            return False
    return True


def _pairs(first: Int64Vector, second: Int64Vector) -> tuple[Int64Vector, Int64Vector]:
    """Return the different pairs of two vectors."""
    order, starts = equal_runs(second, first)
    chosen = order[starts]
    return first[chosen], second[chosen]
