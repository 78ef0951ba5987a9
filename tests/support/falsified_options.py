"""Falsified releases: what a policy asks for beside k: options of privacy, and fields that tell the time of arrival."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from support.base_releases import Record, base_of
from support.named_falsifications import (
    Falsification,
    far_apart,
    limited,
    maker,
    makers_of,
    sound,
    usable_of,
    with_records,
)
from support.release_files import ReleaseFiles


def under(base: str, **sections: dict[str, Any]) -> Callable[[], ReleaseFiles]:
    """Return a release that was made without these options of the policy."""

    return lambda: limited(sound(base), **sections)


@maker
def strictly(ward: Callable[[int], str], count: int = 400, **attribute: Any) -> ReleaseFiles:
    """Return a sound release, judged with `--strict`, in which the ward depends on the place of a record."""
    base = base_of("stream", count)
    document = deepcopy(base.document)
    document["attributes"]["ward"] = {"role": "confidential", "type": "string", **attribute}
    changes = {index: {"ward": ward(index)} for index, record in enumerate(base.records) if record is not None}
    release = sound(with_records(base, changes, document))
    release.strict = True
    return release


def twins() -> ReleaseFiles:
    """Return a release in which one of two records of the same bytes is published twice, and the other not at all."""
    base = base_of("stream")
    one, other = base.clusters[4][0], base.clusters[4][1]
    twin: Record = dict(base.record(one))
    release = sound(with_records(base, {other: twin}))
    release.clusters[4][1] = one
    release.recompose()
    return release


@maker
def under_another_policy(**fields: str) -> ReleaseFiles:
    """Return a release whose evidence or summary names the policy under which it was made: one of k = 2."""
    release = sound("stream")
    weaker = deepcopy(release.document)
    weaker["privacy"]["k"] = 2
    fingerprint = ReleaseFiles(release.base, [], document=weaker).policy.fingerprint
    if "evidence" in fields and release.evidence is not None:
        release.evidence = [json.dumps(json.loads(line) | {"policy": fingerprint}) for line in release.evidence]
    if "summary" in fields and isinstance(release.summary, dict):
        release.summary |= {"policy": fingerprint}
    return release


@maker
def far_under_quota(window: int) -> ReleaseFiles:
    """Return a topic of one cluster, with members 30 apart; the others are listed as suppressed."""
    quota = {"per_subject": {"max": 3, "window": window}}
    release = limited(sound(base_of("topic", 200, people=10**6)), privacy=quota)
    release.clusters = far_apart(release.base, 3, 30, count=1)
    release.recompose()
    return release


def small_population() -> ReleaseFiles:
    """Return a release under a time limit of ten of each 17 records; the others are listed as suppressed.

    They are seven people, fewer than ``min_population``, so a clock decides on none of them.
    """
    release = sound(base_of("stream", 200, people=10**6))
    release = limited(release, stream={"max_delay_s": 5}, privacy={"min_population": 8})
    usable = usable_of(release.base)
    release.clusters = [usable[start : start + 10] for start in range(0, len(usable) - 20, 17)]
    taken = release.clusters[-1][-1]
    release.clusters.append([index for index in usable if index > taken])
    release.recompose()
    return release


_QUOTA = {"per_subject": {"max": 1, "window": 1000}}
_COARSE = {"income": {"role": "quasi_identifier", "bounds": [0, 100_000], "resolution": 5000}}

FALSIFICATIONS: list[Falsification] = [
    *makers_of(
        "topic",
        ("per_subject, members 30 apart, the others listed as suppressed", "delay", far_under_quota(1000)),
        (
            "per_subject with short windows, members 30 apart, the others listed as suppressed",
            "suppressed",
            far_under_quota(60),
        ),
    ),
    *makers_of(
        "stream",
        (
            "min_population and a time limit, seven people of each 17 listed as suppressed",
            "suppressed",
            small_population,
        ),
        ("per_subject exceeded", "releases", under("stream", privacy=_QUOTA)),
    ),
    *makers_of(
        "table",
        ("per_subject exceeded", "releases", under("table", privacy=_QUOTA)),
        ("t not kept", "closeness", under("table", privacy={"t": 0.1})),
    ),
    *makers_of(
        "stream",
        ("a lower cap on the share", "subjects", under("stream", privacy={"k": 4, "max_share": 0.25})),
        ("a shorter delta", "delay", under("stream", stream={"delta": 5})),
        ("a coarser step", "grid", under("stream", attributes=_COARSE)),
        (
            "rows of whole clusters where the policy says ordered",
            "in_turn",
            under("stream", stream={"release": "ordered"}),
        ),
    ),
    *makers_of(
        "ordered",
        (
            "rows in the order of the input where the policy says cluster",
            "together",
            under("ordered", stream={"release": "cluster"}),
        ),
    ),
    *makers_of(
        "stream",
        ("evidence names a policy of smaller k", "policy", under_another_policy(evidence="")),
        ("summary names a policy of smaller k", "policy", under_another_policy(summary="")),
        ("one of two equal records twice", "once", twins),
        ("--strict: a field that rises with the arrival", "unchanged", strictly(lambda place: f"{place // 50:02}")),
        ("--strict: a field that falls with the arrival", "unchanged", strictly(lambda place: f"{9 - place // 50:02}")),
        ("--strict: a field of unique values", "unchanged", strictly(lambda place: f"{place * 7919 % 10007}")),
    ),
]
