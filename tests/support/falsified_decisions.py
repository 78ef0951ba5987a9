"""Falsified releases: records said to be held, orders of decisions, limits that explain no record."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from support.base_releases import base_of
from support.named_falsifications import (
    Falsification,
    edited_line,
    far_apart,
    limited,
    maker,
    makers_of,
    sound,
)
from support.release_files import ReleaseFiles

KAFKA = {"bootstrap_servers": "localhost:9092", "input": "in", "output": "out", "group": "shoal"}


def under(base: str, **sections: dict[str, Any]) -> ReleaseFiles:
    """Return a sound release of 200 records, to be changed, under a policy with these options besides."""
    return limited(sound(base_of(base, 200, people=10**6)), **sections)


def as_listed(release: ReleaseFiles, reason: str) -> ReleaseFiles:
    """Make the files of the clusters; the other usable records are listed under a reason, and there is no summary."""
    release.recompose()
    release.quarantine = [line.replace('"suppressed"', f'"{reason}"') for line in release.quarantine or []]
    release.summary = None
    return release


def by_age(release: ReleaseFiles) -> list[list[int]]:
    """Return the clusters of partition 0, the one with the oldest member first."""
    own = [members for members in release.clusters if release.base.places[members[0]][0] == 0]
    return sorted(own, key=min)


@maker
def said_to_be_held(base: str, **stream: Any) -> ReleaseFiles:
    """Return a release without its third to last cluster, of which no file says anything."""
    release = under(base, stream=stream)
    dropped = by_age(release)[-3]
    release.clusters.remove(dropped)
    release.recompose()
    unmentioned = {release.reference(index) for index in dropped}
    release.quarantine = [line for line in release.quarantine or [] if line not in unmentioned]
    release.summary = None
    return release


@maker
def exchanged_two_by_two(base: str) -> ReleaseFiles:
    """Return a release in which each second pair of clusters is exchanged, and so are their numbers."""
    release = under(base, stream={"delta": 60})
    found = by_age(release)
    for start in range(0, len(found) - 1, 4):
        found[start : start + 2] = found[start + 1], found[start]
    release.clusters = found + [members for members in release.clusters if members not in found]
    release.recompose()
    release.evidence = [release.evidence_line(number, members) for number, members in enumerate(release.clusters)]
    return release


@maker
def below_the_limit(base: str) -> ReleaseFiles:
    """Return a release of one cluster with members 30 apart; the others are listed as too large.

    The limit is one byte above the largest record, so that none is.
    """

    release = under(base)
    records = [record for record in release.base.records if record is not None]
    largest = max(len(json.dumps(record)) for record in records)
    release.document["kafka"] = KAFKA | {"max_record_bytes": max(100, largest + 1)}
    release.clusters = far_apart(release.base, 3, 30, count=1)
    return as_listed(release, "too_large")


@maker
def above_the_limit(base: str) -> ReleaseFiles:
    """Return a release of one cluster with members 30 apart; they are too large, too, like all others."""
    release = under(base, kafka=KAFKA | {"max_record_bytes": 100})
    records = [record and record | {"patient": record["patient"] + "x" * 100} for record in release.base.records]
    lines = release.base.original.splitlines()
    for index, record in enumerate(records):
        if record is not None:
            text = json.dumps(record)
            lines[index] = (edited_line(lines[index].decode(), value=text) if release.base.is_topic else text).encode()
    release.base = replace(release.base, records=tuple(records))
    release = with_original(release, lines)
    release.clusters = far_apart(release.base, 3, 30, count=1)
    return as_listed(release, "too_large")


def at_window_starts() -> ReleaseFiles:
    """Return a topic of one cluster, with the first message of each of three quota windows; the rest is suppressed."""
    release = under("topic", privacy={"per_subject": {"max": 3, "window": 40}})
    places = release.base.places
    first: dict[int, int] = {}
    for index, record in enumerate(release.base.records):
        if record and places[index][0] == 0:
            first.setdefault(places[index][1] // 40, index)
    release.clusters = [list(first.values())[:3]]
    release.recompose()
    return release


def with_original(release: ReleaseFiles, lines: list[bytes], end: bytes = b"\n") -> ReleaseFiles:
    release.base = replace(release.base, original=b"\n".join(lines) + end)
    return release


@maker
def last_line_without_end(base: str, place: int) -> ReleaseFiles:
    """Return a release without one record, which is the last line of the original, without line end.

    It was a member of the cluster at this place or of the next one, which are merged.
    """

    release = under(base, stream={"delta": 40})
    one, other = by_age(release)[place:][:2]
    release.clusters.remove(other)
    *members, index = sorted(one + other)
    release.clusters[release.clusters.index(one)] = members
    release.recompose()
    reference = release.reference(index)
    release.quarantine = [line for line in release.quarantine or [] if line != reference]
    release.summary = None
    lines = release.base.original.splitlines()
    return with_original(release, [*lines[:index], *lines[index + 1 :], lines[index]], b"")


@maker
def numbers_in_the_order_of_rows(base: str) -> ReleaseFiles:
    """Return a topic whose clusters are numbered as they stand, in the reverse order of neighbours."""
    release = under(base, stream={"delta": 60})
    found = by_age(release)
    for start in range(0, len(found) - 2, 3):
        found[start : start + 3] = found[start : start + 3][::-1]
    release.clusters = found + [members for members in release.clusters if members not in found]
    release.recompose()
    numbered = [json.loads(release.evidence_line(0, members)) for members in release.clusters]
    release.evidence = [edited_line(json.dumps(line), cluster=number) for number, line in enumerate(numbered)]
    return release


_BELOW = "members 30 apart, the others listed as too large below the limit"
_ABOVE = "members 30 apart, above the limit like the others, which are listed as too large"
_HELD = "said to be held behind later ones"

FALSIFICATIONS: list[Falsification] = [
    *makers_of("topic", (f"a cluster dropped, {_HELD}", "complete", said_to_be_held("topic"))),
    *makers_of(
        "stream",
        (f"a cluster dropped under a time limit, {_HELD}", "complete", said_to_be_held("stream", max_delay_s=5)),
        (f"a cluster dropped under rule block, {_HELD}", "complete", said_to_be_held("stream", rule="block")),
        ("neighbouring clusters exchanged", "oldest_first", exchanged_two_by_two("stream")),
    ),
    *makers_of(
        "topic", ("neighbouring clusters exchanged, with their numbers", "oldest_first", exchanged_two_by_two("topic"))
    ),
    *makers_of(
        "topic ordered",
        (
            "clusters in reverse order three by three, with their numbers",
            "oldest_first",
            numbers_in_the_order_of_rows("topic ordered"),
        ),
    ),
    *makers_of("stream", (_BELOW, "reasons", below_the_limit("stream"))),
    *makers_of("topic", (_BELOW, "undecided", below_the_limit("topic"))),
    *makers_of("stream", (_ABOVE, "existing", above_the_limit("stream"))),
    *makers_of(
        "topic",
        (_ABOVE, "undecided", above_the_limit("topic")),
        ("per_subject, one member of each window, the others listed as suppressed", "undecided", at_window_starts),
        ("the last line without end dropped", "complete", last_line_without_end("topic", 2)),
    ),
    *makers_of("ordered", ("the last line without end dropped", "complete", last_line_without_end("ordered", -2))),
]
