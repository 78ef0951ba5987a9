"""What a falsified release gains, computed from the truth: each row names its record by its tag.

The oracle shares no arithmetic with the engine, the judge, or the composer's order. It reads the released bytes and the
references; it does not read evidence and summary, which are claims.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from support.base_releases import Base, compose, row_text, shown_of
from support.release_files import ReleaseFiles


class _Row(NamedTuple):
    """A released row: its partition, its text, its quasi-identifiers as written, and the index of its record."""

    partition: int
    text: str
    shown: tuple[str, ...]
    member: int


def gains(release: ReleaseFiles) -> set[str]:
    """Return what the release gives to an attacker that a sound one does not; empty if nothing.

    ``unreadable``, ``invented``, ``twice``: rows that are no rows, or of no record, or of one that has a row.
    ``below k``, ``share``: too few people in a class, or too much of it from one. ``value``: the bytes of a row are not
    those of its record with the means of its class. ``order``: the rows of a class, of a table or of an ordered release
    are not in their order. ``late``: a class spans more than delta records, or is released after its oldest record
    expired. ``sequence``: the classes of a file are not in the order of their oldest records; the delay need not exceed
    delta. ``lost``: a record is missing, and no suppression can explain it. ``diverse``, ``value share``, ``close``: a
    class exceeds a limit of confidential values.

    The order of the classes of a topic is no gain. The rows of an ordered release do not show an order of decisions.
    """
    base = release.base
    rows = list(_rows(base, release.released_bytes()))
    if None in rows:
        return {"unreadable"}
    if base.is_topic and base.is_ordered and _is_earlier_state(release):
        return set()
    found: set[str] = set()
    read = [row for row in rows if row is not None]
    tags = Counter(row.member for row in read)
    if -1 in tags:
        return {"invented"}
    found |= {"twice"} if max(tags.values(), default=0) > 1 else set()
    classes = _classes(base, read)
    for members in classes:
        found |= _faults_of_class(base, members, list(tags))
    found |= _disorder(base, read, classes)
    if base.delta is not None:
        found |= _lateness(base, classes, base.delta)
        found |= {"sequence"} if _is_out_of_sequence(base, classes) else set()
    return found | _losses(release, {row.member for row in read})


def _rows(base: Base, content: bytes) -> Iterator[_Row | None]:
    index_of = {record["tag"]: index for index, record in enumerate(base.records) if record is not None}
    try:
        lines = content.decode().removesuffix("\n").split("\n") if content else []
    except UnicodeDecodeError:
        yield None
        return
    for line in lines[1:] if base.is_csv else lines:
        partition, text = 0, line
        try:
            if base.is_topic:
                wrapper = json.loads(line)
                partition, text = wrapper["partition"], wrapper["value"]
                if line != json.dumps({"partition": partition, "value": text}, ensure_ascii=False):
                    yield None
            shown, tag = _fields(base, text)
        except (ValueError, KeyError, TypeError, IndexError, StopIteration, csv.Error):
            yield None
            continue
        yield _Row(partition, text, shown, index_of.get(tag, -1))


def _fields(base: Base, text: str) -> tuple[tuple[str, ...], str]:
    if base.shape is not None:
        return base.shape.read(text)
    if base.is_csv:
        cells = next(csv.reader(io.StringIO(text), strict=True))
        return tuple(cells[:2]), cells[2]
    record = json.loads(text, parse_int=str, parse_float=str)
    return (record["age"], record["income"]), record["tag"]


def _classes(base: Base, rows: Sequence[_Row]) -> list[list[_Row]]:
    """Return the classes: rows with equal quasi-identifiers. Where clusters leave whole, only rows side by side."""
    if not (base.is_table or base.is_ordered):
        return [list(found) for _, found in groupby(rows, lambda row: (row.partition, row.shown))]
    found: dict[tuple[int, tuple[str, ...]], list[_Row]] = {}
    for row in rows:
        found.setdefault((row.partition, row.shown), []).append(row)
    return list(found.values())


def _faults_of_class(base: Base, members: Sequence[_Row], released: Sequence[int]) -> set[str]:
    records = [base.record(row.member) for row in members]
    people = Counter(record["patient"].strip() for record in records)
    found = {"below k"} if len(people) < base.k else set()
    if 2 * max(people.values()) > len(records):
        found.add("share")
    if base.shape is not None:
        found |= base.shape.faults(records, [base.record(index) for index in released])
    means = shown_of(base, [row.member for row in members], released)
    is_ordered = base.is_ordered  # its rows are compared as a whole, since they carry values of other members
    if not is_ordered and any(row.text != row_text(base, base.record(row.member), means) for row in members):
        found.add("value")
    return found


def _is_earlier_state(release: ReleaseFiles) -> bool:
    """Whether only the last rows of a release that gains nothing are missing, and may not be published yet.

    A row is published at the position of a record of its cluster, at the latest when delta more records have arrived.
    """
    base, ranks = release.base, _ranks(release.base)
    due = compose(base, release.clusters)
    if release.rows == due or any(
        rows != all_rows[: len(rows)] for rows, all_rows in zip(release.rows, due, strict=True)
    ):
        return False
    whole = ReleaseFiles(base, release.clusters)
    whole.recompose()
    decided = {index for members in release.clusters for index in members}
    if gains(whole) or _losses(release, decided):
        return False
    newest = Counter({base.places[index][0]: rank for index, rank in ranks.items()})
    for partition, rows in enumerate(release.rows):
        slots = sorted(index for index in decided if base.places[index][0] == partition)
        if any(newest[partition] - ranks[index] >= (base.delta or 0) for index in slots[len(rows) :]):
            return False
    return True


def _disorder(base: Base, rows: Sequence[_Row], classes: Sequence[Sequence[_Row]]) -> set[str]:
    if base.is_ordered:
        due: list[tuple[int, int, str]] = []
        for members in classes:
            records = [base.record(row.member) for row in members]
            means = shown_of(base, [row.member for row in members], [row.member for row in rows])
            texts = sorted((row_text(base, record, means) for record in records), key=str.encode)
            slots = sorted((row.partition, row.member) for row in members)
            due += [(*slot, text) for slot, text in zip(slots, texts, strict=True)]
        written = sorted(rows, key=lambda row: row.partition)
        return set() if [row.text for row in written] == [text for _, _, text in sorted(due)] else {"order"}
    parts = [[row.text for row in rows]] if base.is_table else [[row.text for row in members] for members in classes]
    return set() if all(part == sorted(part, key=str.encode) for part in parts) else {"order"}


def _ranks(base: Base) -> dict[int, int]:
    """Return the rank of each record among the usable ones of its partition."""
    ranks: dict[int, int] = {}
    counts: Counter[int] = Counter()
    for index, record in enumerate(base.records):
        if record is not None:
            ranks[index] = counts[base.places[index][0]]
            counts[base.places[index][0]] += 1
    return ranks


def _lateness(base: Base, classes: Sequence[Sequence[_Row]], delta: int) -> set[str]:
    ranks = _ranks(base)
    newest_so_far = -1
    for members in classes:
        places = [ranks[row.member] for row in members]
        if max(places) - min(places) > delta:
            return {"late"}
        # A file shows the order of decisions: every class before this one had arrived when this one was decided.
        newest_so_far = max(newest_so_far, *places)
        if not (base.is_ordered or base.is_topic) and newest_so_far - min(places) > delta:
            return {"late"}
    return set()


def _is_out_of_sequence(base: Base, classes: Sequence[Sequence[_Row]]) -> bool:
    """Whether the classes of a file are in another order than their oldest records, each decided when it expires."""
    if base.is_ordered or base.is_topic:
        return False
    ranks = _ranks(base)
    oldest = [min(ranks[row.member] for row in rows) for rows in classes]
    return oldest != sorted(oldest)


def _losses(release: ReleaseFiles, released: set[int]) -> set[str]:
    base = release.base
    ranks = _ranks(base)
    missing = sorted(ranks.keys() - released)
    if not missing:
        return set()
    if release.quarantine is not None:
        listed = {
            (line.get("partition"), line.get("offset"))
            for line in map(json.loads, release.quarantine)
            if isinstance(line, dict)
        }
        if any(base.places[index] not in listed for index in missing):
            return {"lost"}
    if base.is_table or base.delta is None:
        return {"lost"}
    if base.is_topic and release.quarantine is not None:
        return set()  # a drain of the service may have suppressed them: the verdict calls them claimed
    if base.shape is not None and base.shape.has_value_limit:
        return set()  # they may have been suppressed because no cluster of them keeps the limit: claimed, too
    return {"lost"} if any(_is_provably_lost(base, ranks, missing, index, base.delta) for index in missing) else set()


def _is_provably_lost(base: Base, ranks: dict[int, int], missing: Sequence[int], index: int, delta: int) -> bool:
    """Whether k people were surely held when the record expired: itself and other missing ones that had not expired."""
    partition = base.places[index][0]
    held = [
        other
        for other in missing
        if base.places[other][0] == partition and ranks[index] <= ranks[other] <= ranks[index] + delta
    ]
    return len({base.record(other)["patient"] for other in held}) >= base.k
