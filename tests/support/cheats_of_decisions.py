"""Cheats of what was decided and when: records said to be held, orders of decisions, limits that explain no record."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

from support.cheat_base import base_of
from support.cheat_draft import Draft
from support.named_cheats import Cheat, edited_line, sound

__all__ = ["CHEATS"]

KAFKA = {"bootstrap_servers": "localhost:9092", "input": "in", "output": "out", "group": "shoal"}


def under(base: str, count: int = 200, **sections: dict[str, Any]) -> Draft:
    """Return a sound release, to be changed, under a policy with these options besides."""
    draft = sound(base_of(base, count, people=10**6))
    draft.document = deepcopy(draft.document)
    for name, options in sections.items():
        draft.document[name] = draft.document.get(name, {}) | options
    return draft


def by_age(draft: Draft) -> list[list[int]]:
    """Return the clusters of partition 0, the one with the oldest member first."""
    own = [members for members in draft.clusters if draft.base.places[members[0]][0] == 0]
    return sorted(own, key=min)


def said_to_be_held(base: str, **stream: Any) -> Callable[[], Draft]:
    """Return a maker of a release without its third to last cluster, of which no file says anything."""

    def make() -> Draft:
        draft = under(base, stream=stream)
        dropped = by_age(draft)[-3]
        draft.clusters.remove(dropped)
        draft.recompose()
        unmentioned = {draft.reference(index) for index in dropped}
        draft.quarantine = [line for line in draft.quarantine or [] if line not in unmentioned]
        draft.summary = None
        return draft

    return make


def exchanged_two_by_two(base: str) -> Callable[[], Draft]:
    """Return a maker of a release in which each second pair of clusters is exchanged, and so are their numbers."""

    def make() -> Draft:
        draft = under(base, stream={"delta": 60})
        found = by_age(draft)
        for start in range(0, len(found) - 1, 4):
            found[start : start + 2] = found[start + 1], found[start]
        draft.clusters = found + [members for members in draft.clusters if members not in found]
        draft.recompose()
        draft.evidence = [draft.evidence_line(number, members) for number, members in enumerate(draft.clusters)]
        return draft

    return make


def below_the_limit(base: str) -> Callable[[], Draft]:
    """Return a maker of a release of one cluster with members 30 apart; the others are listed as too large.

    The limit is one byte above the largest record, so that none is.
    """

    def make() -> Draft:
        draft = under(base)
        records = [record for record in draft.base.records if record is not None]
        largest = max(len(json.dumps(record)) for record in records)
        draft.document["kafka"] = KAFKA | {"max_record_bytes": max(100, largest + 1)}
        places = draft.base.places
        usable = [index for index, record in enumerate(draft.base.records) if record and places[index][0] == 0]
        draft.clusters = [usable[:90:30]]
        draft.recompose()
        draft.quarantine = [line.replace('"suppressed"', '"too_large"') for line in draft.quarantine or []]
        draft.summary = None
        return draft

    return make


def above_the_limit(base: str) -> Callable[[], Draft]:
    """Return a maker of a release of one cluster with members 30 apart; they are too large, too, like all others."""

    def make() -> Draft:
        draft = under(base, kafka=KAFKA | {"max_record_bytes": 100})
        records = [record and record | {"patient": record["patient"] + "x" * 100} for record in draft.base.records]
        lines = draft.base.original.splitlines()
        for index, record in enumerate(records):
            if record is not None:
                text = json.dumps(record)
                lines[index] = (
                    edited_line(lines[index].decode(), value=text) if draft.base.is_topic else text
                ).encode()
        draft.base = replace(draft.base, records=tuple(records))
        draft = with_original(draft, lines)
        places = draft.base.places
        draft.clusters = [[index for index, record in enumerate(records) if record and places[index][0] == 0][:90:30]]
        draft.recompose()
        draft.quarantine = [line.replace('"suppressed"', '"too_large"') for line in draft.quarantine or []]
        draft.summary = None
        return draft

    return make


def at_window_starts() -> Draft:
    """Return a topic of one cluster, with the first message of each of three quota windows; the rest is suppressed."""
    draft = under("topic", privacy={"per_subject": {"max": 3, "window": 40}})
    places = draft.base.places
    first: dict[int, int] = {}
    for index, record in enumerate(draft.base.records):
        if record and places[index][0] == 0:
            first.setdefault(places[index][1] // 40, index)
    draft.clusters = [list(first.values())[:3]]
    draft.recompose()
    return draft


def with_original(draft: Draft, lines: list[bytes], end: bytes = b"\n") -> Draft:
    draft.base = replace(draft.base, original=b"\n".join(lines) + end)
    return draft


def last_line_without_end(base: str, place: int) -> Callable[[], Draft]:
    """Return a maker of a release without one record, which is the last line of the original, without line end.

    It was a member of the cluster at this place or of the next one, which are merged.
    """

    def make() -> Draft:
        draft = under(base, stream={"delta": 40})
        one, other = by_age(draft)[place:][:2]
        draft.clusters.remove(other)
        *members, index = sorted(one + other)
        draft.clusters[draft.clusters.index(one)] = members
        draft.recompose()
        reference = draft.reference(index)
        draft.quarantine = [line for line in draft.quarantine or [] if line != reference]
        draft.summary = None
        lines = draft.base.original.splitlines()
        return with_original(draft, [*lines[:index], *lines[index + 1 :], lines[index]], b"")

    return make


def numbers_in_the_order_of_rows(base: str) -> Callable[[], Draft]:
    """Return a maker of a topic whose clusters are numbered as they stand, in the reverse order of neighbours."""

    def make() -> Draft:
        draft = under(base, stream={"delta": 60})
        found = by_age(draft)
        for start in range(0, len(found) - 2, 3):
            found[start : start + 3] = found[start : start + 3][::-1]
        draft.clusters = found + [members for members in draft.clusters if members not in found]
        draft.recompose()
        numbered = [json.loads(draft.evidence_line(0, members)) for members in draft.clusters]
        draft.evidence = [edited_line(json.dumps(line), cluster=number) for number, line in enumerate(numbered)]
        return draft

    return make


CHEATS: list[Cheat] = [
    Cheat("a cluster dropped, said to be held behind later ones", "topic", said_to_be_held("topic"), 1, "complete"),
    Cheat(
        "a cluster dropped under a time limit, said to be held behind later ones",
        "stream",
        said_to_be_held("stream", max_delay_s=5),
        1,
        "complete",
    ),
    Cheat(
        "a cluster dropped under rule block, said to be held behind later ones",
        "stream",
        said_to_be_held("stream", rule="block"),
        1,
        "complete",
    ),
    Cheat("neighbouring clusters exchanged", "stream", exchanged_two_by_two("stream"), 1, "oldest_first"),
    Cheat(
        "neighbouring clusters exchanged, with their numbers", "topic", exchanged_two_by_two("topic"), 1, "oldest_first"
    ),
    Cheat(
        "clusters in reverse order three by three, with their numbers",
        "topic ordered",
        numbers_in_the_order_of_rows("topic ordered"),
        1,
        "oldest_first",
    ),
    Cheat(
        "members 30 apart, the others listed as too large below the limit",
        "stream",
        below_the_limit("stream"),
        1,
        "reasons",
    ),
    Cheat(
        "members 30 apart, the others listed as too large below the limit",
        "topic",
        below_the_limit("topic"),
        2,
        "undecided",
    ),
    Cheat(
        "members 30 apart, above the limit like the others, which are listed as too large",
        "stream",
        above_the_limit("stream"),
        1,
        "existing",
    ),
    Cheat(
        "members 30 apart, above the limit like the others, which are listed as too large",
        "topic",
        above_the_limit("topic"),
        2,
        "undecided",
    ),
    Cheat(
        "per_subject, one member of each window, the others listed as suppressed",
        "topic",
        at_window_starts,
        2,
        "undecided",
    ),
    Cheat("the last line without end dropped", "topic", last_line_without_end("topic", 2), 1, "complete"),
    Cheat("the last line without end dropped", "ordered", last_line_without_end("ordered", -2), 1, "complete"),
]
