"""Falsified releases: clusters and rows: the files agree with each other as far as they can be made to."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from support.base_releases import base_of, row_text, shown_of, timestamp_of
from support.falsification_moves import arrival_order, means_of_two, raw_value, relabel
from support.named_falsifications import (
    Edit,
    Falsification,
    edited_line,
    editor,
    falsifications_of,
    far_apart,
    maker,
    makers_of,
    sound,
    summary_says,
    unchanged,
    usable_of,
    with_records,
)
from support.release_files import ReleaseFiles


@editor
def clusters(release: ReleaseFiles, change: Callable[[list[list[int]]], object]) -> None:
    """Change the clusters, and make all files agree again."""
    change(release.clusters)
    release.clusters = [members for members in release.clusters if members]
    release.recompose()


@editor
def rows(release: ReleaseFiles, change: Callable[[list[list[str]]], object]) -> None:
    """Change the rows alone."""
    change(release.rows)


def split(found: list[list[int]]) -> None:
    found[0:1] = [found[0][:1], found[0][1:]]


def exchanged(found: list[list[int]]) -> None:
    found[0][0], found[-1][0] = found[-1][0], found[0][0]


def interleaved(found: list[list[str]]) -> None:
    both = [row for pair in zip(found[0], found[1], strict=False) for row in pair]
    found[0:2] = [both + found[0][len(both) // 2 :] + found[1][len(both) // 2 :]]


def spread_over(size: int, distance: int, count: int = 200) -> ReleaseFiles:
    """Return a release whose clusters hold records of one stretch of the input that are a distance apart."""
    release = sound(base_of("stream", count, people=10**6))
    usable = usable_of(release.base)
    block = size * distance
    release.clusters = [
        [usable[start + offset + number * distance] for number in range(size)]
        for start in range(0, len(usable) - block + 1, block)
        for offset in range(distance)
    ]
    taken = {index for members in release.clusters for index in members}
    release.clusters[-1] += [index for index in usable if index not in taken]
    release.recompose()
    return release


def kept_order() -> ReleaseFiles:
    """Return a release in the order of the input with members 40 to 80 apart; the summary says so."""
    release = spread_over(3, 40)
    index_of = {record["tag"]: index for index, record in enumerate(release.base.records) if record is not None}
    texts = [row for group in release.rows for row in group]
    release.rows = [sorted(texts, key=lambda row: next(place for tag, place in index_of.items() if tag in row))]
    release.summary = {**release.summary, "keep_order": True} if isinstance(release.summary, dict) else release.summary
    return release


def one_row_of_each() -> ReleaseFiles:
    """Return 40 rows of an ordered release, each of another cluster whose other members come much later."""
    release = sound(base_of("ordered", 200, people=10**6))
    release.clusters = far_apart(release.base, 4, 40, count=40)
    release.recompose()
    release.rows = [release.rows[0][:40]]
    release.summary = None
    return release


@maker
def dropped(edit: Edit, base: str = "stream") -> ReleaseFiles:
    """Return a release in which 150 of 200 records are missing, also in the evidence."""
    release = sound(base_of(base, 200, people=100))
    while sum(map(len, release.clusters)) > 50:
        release.clusters.pop()
    release.recompose()
    edit(release)
    return release


def nothing_said(release: ReleaseFiles) -> None:
    release.summary = release.quarantine = None


@editor
def listed_as(release: ReleaseFiles, reason: str) -> None:
    """Give another reason for records that were not released."""
    records = release.base.records
    released = {index for members in release.clusters for index in members}
    unpublished = [index for index in range(len(records)) if index not in released]
    release.summary = None
    release.quarantine = [release.reference(index, None if records[index] is None else reason) for index in unpublished]


@maker
def one_far_cluster(base: str, count: int = 1) -> ReleaseFiles:
    """Return a release of a few clusters with members 30 apart; the others are listed as invalid."""
    release = sound(base_of(base, 200, people=10**6))
    release.clusters = far_apart(release.base, 3, 30, count=count)
    release.recompose()
    listed_as("invalid")(release)
    if release.base.is_ordered:
        release.rows = [release.rows[0][:count]]
    return release


def listed_as_old() -> ReleaseFiles:
    """Return a release without its last cluster, which is listed as invalid; its messages are dated before others."""
    release = sound("topic")
    *release.clusters, dropped = release.clusters
    lines = [json.loads(line) for line in release.base.original.splitlines()]
    for index in dropped:
        lines[index]["timestamp"] = timestamp_of(0)
    release.base = replace(release.base, original="".join(f"{json.dumps(line)}\n" for line in lines).encode())
    release.recompose()
    listed_as("invalid")(release)
    return release


def partition_missing(release: ReleaseFiles) -> None:
    places = release.base.places
    release.clusters = [members for members in release.clusters if places[members[0]][0] == 1]
    release.recompose()
    nothing_said(release)


@maker
def one_person(spellings: Sequence[str]) -> ReleaseFiles:
    """Return a release in which one cluster is one person, spelled in several ways."""
    base = base_of("stream")
    members = base.clusters[3]
    names = {index: {"patient": spellings[n % len(spellings)]} for n, index in enumerate(members)}
    return sound(with_records(base, names))


def revealed(release: ReleaseFiles) -> None:
    """Put the tag and ward of each record at its own place of an ordered release."""
    found = []
    for members in release.clusters:
        means = shown_of(release.base, members, members)
        found += [(index, row_text(release.base, release.base.record(index), means)) for index in members]
    release.rows = [[row for _, row in sorted(found)]]


def one_after_the_other(release: ReleaseFiles) -> None:
    """Write the clusters of a table one after the other, in the order in which their first records arrived."""
    found, by_age = [], sorted(release.clusters, key=min)
    for members in by_age:
        means = shown_of(release.base, members, members)
        texts = (row_text(release.base, release.base.record(index), means) for index in members)
        found.append(sorted(texts, key=str.encode))
    release.rows = found
    release.evidence = [release.evidence_line(number, members) for number, members in enumerate(by_age)]


def consecutive() -> ReleaseFiles:
    """Return a table whose clusters are blocks of its records, written one after the other in the input's order."""
    release = sound("table")
    release.clusters = [list(range(start, start + 6)) for start in range(0, len(release.base.records), 6)]
    release.recompose()
    one_after_the_other(release)
    return release


def first_last(found: list[list[int]]) -> None:
    found.append(found.pop(0))


@editor
def equally_numbered(
    release: ReleaseFiles, change: Callable[[list[list[int]]], object], count: int | None = None
) -> None:
    """Change the clusters, and give the first lines of evidence, or all, the same number."""
    clusters(change)(release)
    assert release.evidence is not None
    release.evidence[:count] = [edited_line(line, cluster=0) for line in release.evidence[:count]]


def moved(seed: int, move: Callable[[ReleaseFiles, Random], None]) -> Edit:
    return lambda release: move(release, Random(seed))


_MOST, _MESSAGES = "150 of 200 records dropped", "150 of 200 messages dropped"
_EXCHANGED = ("members exchanged between the first and the last cluster", "delay", clusters(exchanged))
_DROPPED = ("one cluster dropped and listed as suppressed", "suppressed", clusters(lambda found: found.pop(5)))
_SPLIT = ("a cluster split in two, below k", "subjects", clusters(split))

FALSIFICATIONS: list[Falsification] = [
    *makers_of(
        "stream", ("rows in the order of the input, members 40 apart, summary says keep_order", "delay", kept_order)
    ),
    *makers_of("ordered", ("one row each of 40 clusters, whose members are 40 apart", "delay", one_row_of_each)),
    *makers_of(
        "stream",
        ("members 160 apart at a delta of 20", "delay", lambda: spread_over(3, 80, 260)),
        ("members 22 apart at a delta of 20", "delay", lambda: spread_over(3, 11)),
        (f"{_MOST}, listed as suppressed", "suppressed", dropped(unchanged)),
        (f"{_MOST}, summary says suppressed", "complete", dropped(summary_says())),
        (f"{_MOST}, summary says held", "complete", dropped(summary_says(suppressed={}, held=149))),
        (
            f"{_MOST}, summary says invalid",
            "complete",
            dropped(summary_says(suppressed={}, quarantined={"invalid": 152})),
        ),
        (
            f"{_MOST}, summary counts the others alone",
            "complete",
            dropped(summary_says(suppressed={}, quarantined={}, records_in=51)),
        ),
        (f"{_MOST}, nothing said of them", "complete", dropped(nothing_said)),
    ),
    *makers_of(
        "table",
        ("150 of 200 records of a table dropped", "complete", dropped(summary_says(), "table")),
        ("150 of 200 records of a table dropped, listed as suppressed", "suppressed", dropped(unchanged, "table")),
    ),
    *makers_of("topic", (f"{_MESSAGES}, listed as suppressed", "suppressed", dropped(unchanged, "topic"))),
    *makers_of("table", ("clusters of consecutive records, one after the other", "byte_order", consecutive)),
    *makers_of(
        "stream",
        ("one person, with blanks around the name", "subjects", one_person(("x", " x", "x ", "\tx"))),
        (
            "one person, with composed and decomposed letters",
            "subjects",
            one_person(("\u00e9", unicodedata.normalize("NFD", "\u00e9"))),
        ),
        ("one person owns two of three records", "subjects", one_person(("x", "x", "y"))),
    ),
    *falsifications_of(
        "stream",
        _SPLIT,
        ("a record in two clusters", "once", clusters(lambda found: found[1].append(found[0][0]))),
        ("a record twice in its cluster", "once", clusters(lambda found: found[0].append(found[0][0]))),
        _EXCHANGED,
        ("the first and the last cluster merged", "delay", clusters(lambda found: found[0].extend(found.pop()))),
        _DROPPED,
        ("the clusters in the reverse order", "delay", clusters(lambda found: found.reverse())),
        ("the first cluster published last", "delay", clusters(lambda found: found.append(found.pop(0)))),
        ("a row twice", "nothing_else", rows(lambda found: found[0].insert(0, found[0][0]))),
        ("a row missing", "nothing_missing", rows(lambda found: found[0].pop())),
        ("all rows of a cluster missing", "nothing_missing", rows(lambda found: found.pop(3))),
        ("the rows of two clusters take turns", "together", rows(interleaved)),
        ("rows of a cluster in the order of arrival", "byte_order", moved(2, arrival_order)),
        ("two clusters with one mean, that of both", "nothing_else", moved(1, means_of_two)),
        ("a record with its own values", "nothing_else", moved(1, raw_value)),
        ("the tags of two records exchanged", "nothing_else", moved(3, relabel)),
    ),
    *falsifications_of(
        "ordered",
        _EXCHANGED,
        _SPLIT,
        ("each record keeps its own fields at its own place", "byte_order", revealed),
        ("two rows exchanged", "in_turn", rows(lambda found: found[0].insert(1, found[0].pop(5)))),
        ("the last 60 rows missing", "nothing_missing", rows(lambda found: found[0].__delitem__(slice(-60, None)))),
        ("the first row missing", "in_turn", rows(lambda found: found[0].pop(0))),
        _DROPPED,
    ),
    *falsifications_of(
        "table",
        _SPLIT,
        ("rows in another order than that of their bytes", "byte_order", rows(lambda found: found[0].reverse())),
        ("clusters one after the other, by their first record", "byte_order", one_after_the_other),
        ("one record dropped and listed as suppressed", "suppressed", clusters(lambda found: found[0].pop())),
    ),
    *makers_of(
        "stream",
        (f"{_MOST}, listed as invalid", "reasons", dropped(listed_as("invalid"))),
        (f"{_MOST}, listed as too large", "reasons", dropped(listed_as("too_large"))),
    ),
    *makers_of(
        "topic",
        (f"{_MESSAGES}, listed as invalid", "undecided", dropped(listed_as("invalid"), "topic")),
        (f"{_MESSAGES}, listed as too large", "undecided", dropped(listed_as("too_large"), "topic")),
        (f"{_MESSAGES}, listed as undecodable", "reasons", dropped(listed_as("undecodable"), "topic")),
        ("members 30 apart, the others listed as invalid", "undecided", one_far_cluster("topic")),
    ),
    *makers_of(
        "topic ordered",
        (
            "one row each of four clusters whose members are 30 apart, the others listed as invalid",
            "undecided",
            one_far_cluster("topic ordered", 4),
        ),
    ),
    *makers_of(
        "topic",
        ("a message listed as invalid that is older than one released before it", "reasons", listed_as_old),
        (f"{_MESSAGES}, nothing said of them", "undecided", dropped(nothing_said, "topic")),
    ),
    *falsifications_of(
        "topic ordered",
        ("all clusters with the same number", "undecided", equally_numbered(unchanged)),
        _EXCHANGED,
        (
            "the last 40 rows of a partition missing",
            "nothing_missing",
            rows(lambda found: found[0].__delitem__(slice(-40, None))),
        ),
        _DROPPED,
        ("two rows exchanged", "in_turn", rows(lambda found: found[1].insert(1, found[1].pop(5)))),
    ),
    *falsifications_of(
        "topic",
        ("no row of a partition, nothing said of its records", "undecided", partition_missing),
        ("the first cluster published last, all numbers equal", "undecided", equally_numbered(first_last)),
        ("five clusters with the same number", "undecided", equally_numbered(unchanged, 5)),
        _EXCHANGED,
        _DROPPED,
    ),
]
