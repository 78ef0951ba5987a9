"""Falsified releases: what a policy asks for beside k: options of privacy, and fields that tell the time of arrival."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from support.base_releases import Record, base_of
from support.named_falsifications import Falsification, sound, with_records
from support.release_files import ReleaseFiles

__all__ = ["FALSIFICATIONS"]


def under(base: str, **sections: dict[str, Any]) -> Callable[[], ReleaseFiles]:
    """Return a maker of a release that was made without these options of the policy."""

    def make() -> ReleaseFiles:
        release = sound(base)
        release.document = deepcopy(release.document)
        for name, options in sections.items():
            release.document[name] = release.document.get(name, {}) | options
        return release

    return make


def strictly(ward: Callable[[int], str], count: int = 400, **attribute: Any) -> Callable[[], ReleaseFiles]:
    """Return a maker of a sound release, judged with `--strict`, in which the ward depends on the place of a record."""

    def make() -> ReleaseFiles:
        base = base_of("stream", count)
        document = deepcopy(base.document)
        document["attributes"]["ward"] = {"role": "confidential", "type": "string", **attribute}
        changes = {index: {"ward": ward(index)} for index, record in enumerate(base.records) if record is not None}
        release = sound(with_records(base, changes, document))
        release.strict = True
        return release

    return make


def twins() -> ReleaseFiles:
    """Return a release in which one of two records of the same bytes is published twice, and the other not at all."""
    base = base_of("stream")
    one, other = base.clusters[4][0], base.clusters[4][1]
    twin: Record = dict(base.record(one))
    release = sound(with_records(base, {other: twin}))
    release.clusters[4][1] = one
    release.recompose()
    return release


def under_another_policy(**fields: str) -> Callable[[], ReleaseFiles]:
    """Return a maker of a release whose evidence or summary names the policy under which it was made: one of k = 2."""

    def make() -> ReleaseFiles:
        release = sound("stream")
        weaker = deepcopy(release.document)
        weaker["privacy"]["k"] = 2
        fingerprint = ReleaseFiles(release.base, [], document=weaker).policy.fingerprint
        if "evidence" in fields and release.evidence is not None:
            release.evidence = [json.dumps(json.loads(line) | {"policy": fingerprint}) for line in release.evidence]
        if "summary" in fields and isinstance(release.summary, dict):
            release.summary |= {"policy": fingerprint}
        return release

    return make


def far_under_quota(window: int) -> Callable[[], ReleaseFiles]:
    """Return a maker of a topic of one cluster, with members 30 apart; the others are listed as suppressed."""

    def make() -> ReleaseFiles:
        release = sound(base_of("topic", 200, people=10**6))
        places = release.base.places
        usable = [index for index, record in enumerate(release.base.records) if record and places[index][0] == 0]
        release.document = deepcopy(release.document)
        release.document["privacy"]["per_subject"] = {"max": 3, "window": window}
        release.clusters = [usable[:90:30]]
        release.recompose()
        return release

    return make


def small_population() -> ReleaseFiles:
    """Return a release under a time limit of ten of each 17 records; the others are listed as suppressed.

    They are seven people, fewer than ``min_population``, so a clock decides on none of them.
    """
    release = sound(base_of("stream", 200, people=10**6))
    release.document = deepcopy(release.document)
    release.document["stream"]["max_delay_s"] = 5
    release.document["privacy"]["min_population"] = 8
    usable = [index for index, record in enumerate(release.base.records) if record is not None]
    release.clusters = [usable[start : start + 10] for start in range(0, len(usable) - 20, 17)]
    taken = release.clusters[-1][-1]
    release.clusters.append([index for index in usable if index > taken])
    release.recompose()
    return release


FALSIFICATIONS: list[Falsification] = [
    Falsification(
        "per_subject, members 30 apart, the others listed as suppressed", "topic", far_under_quota(1000), 1, "delay"
    ),
    Falsification(
        "per_subject with short windows, members 30 apart, the others listed as suppressed",
        "topic",
        far_under_quota(60),
        1,
        "suppressed",
    ),
    Falsification(
        "min_population and a time limit, seven people of each 17 listed as suppressed",
        "stream",
        small_population,
        1,
        "suppressed",
    ),
    Falsification(
        "per_subject exceeded",
        "stream",
        under("stream", privacy={"per_subject": {"max": 1, "window": 1000}}),
        1,
        "releases",
    ),
    Falsification(
        "per_subject exceeded",
        "table",
        under("table", privacy={"per_subject": {"max": 1, "window": 1000}}),
        1,
        "releases",
    ),
    Falsification("t not kept", "table", under("table", privacy={"t": 0.1}), 1, "closeness"),
    Falsification(
        "a lower cap on the share", "stream", under("stream", privacy={"k": 4, "max_share": 0.25}), 1, "subjects"
    ),
    Falsification("a shorter delta", "stream", under("stream", stream={"delta": 5}), 1, "delay"),
    Falsification(
        "a coarser step",
        "stream",
        under(
            "stream", attributes={"income": {"role": "quasi_identifier", "bounds": [0, 100_000], "resolution": 5000}}
        ),
        1,
        "grid",
    ),
    Falsification(
        "rows of whole clusters where the policy says ordered",
        "stream",
        under("stream", stream={"release": "ordered"}),
        1,
        "in_turn",
    ),
    Falsification(
        "rows in the order of the input where the policy says cluster",
        "ordered",
        under("ordered", stream={"release": "cluster"}),
        1,
        "together",
    ),
    Falsification("evidence names a policy of smaller k", "stream", under_another_policy(evidence=""), 1, "policy"),
    Falsification("summary names a policy of smaller k", "stream", under_another_policy(summary=""), 1, "policy"),
    Falsification("one of two equal records twice", "stream", twins, 1, "once"),
    Falsification(
        "--strict: a field that rises with the arrival",
        "stream",
        strictly(lambda place: f"{place // 50:02}"),
        1,
        "unchanged",
    ),
    Falsification(
        "--strict: a field that falls with the arrival",
        "stream",
        strictly(lambda place: f"{9 - place // 50:02}"),
        1,
        "unchanged",
    ),
    Falsification("--strict: the rank modulo 97", "stream", strictly(lambda place: f"{place % 97:02}"), 1, "unchanged"),
    Falsification("--strict: the rank modulo 7", "stream", strictly(lambda place: f"{place % 7}"), 1, "unchanged"),
    Falsification(
        "--strict: a scrambled rank", "stream", strictly(lambda place: f"{place // 20 * 37 % 101:03}"), 1, "unchanged"
    ),
    Falsification(
        "--strict: a field of unique values",
        "stream",
        strictly(lambda place: f"{place * 7919 % 10007}"),
        1,
        "unchanged",
    ),
]
