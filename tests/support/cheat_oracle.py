"""What a falsified release gains, computed from the truth: each row names its record by its tag.

The oracle shares no arithmetic with the engine, the judge, or the composer's order. It reads the released bytes and the
references; it does not read evidence and summary, which are the cheat's claims.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from support.cheat_base import Base, compose, mean_of, row_text
from support.cheat_draft import Draft

__all__ = ["gains"]


class _Row(NamedTuple):
    """A released row: its partition, its text, its quasi-identifiers as written, and the index of its record."""

    partition: int
    text: str
    shown: tuple[str, ...]
    member: int


def gains(draft: Draft) -> set[str]:
    """Return what the release gives to an attacker that a sound one does not; empty if nothing.

    ``unreadable``, ``invented``, ``twice``: rows that are no rows, or of no record, or of one that has a row.
    ``below k``, ``share``: too few people in a class, or too much of it from one. ``value``: the bytes of a row are not
    those of its record with the means of its class. ``order``: the rows of a class, of a table or of an ordered release
    are not in their order. ``late``: a class spans more than delta records, or is released after its oldest record
    expired. ``sequence``: no decisions in time explain the order of the classes of a topic. ``lost``: a record is
    missing, and no suppression can explain it.
    """
    base = draft.base
    rows = list(_rows(base, draft.released_bytes()))
    if None in rows:
        return {"unreadable"}
    if base.is_topic and base.is_ordered and _is_earlier_state(draft):
        return set()
    found: set[str] = set()
    read = [row for row in rows if row is not None]
    tags = Counter(row.member for row in read)
    if -1 in tags:
        return {"invented"}
    found |= {"twice"} if max(tags.values(), default=0) > 1 else set()
    classes = _classes(base, read)
    for members in classes:
        found |= _faults_of_class(base, members)
    found |= _disorder(base, read, classes)
    if base.delta is not None:
        found |= _lateness(base, classes, base.delta)
        if base.is_topic and "late" not in found and _is_out_of_sequence(base, classes, base.delta):
            found.add("sequence")
    return found | _losses(draft, {row.member for row in read})


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


def _faults_of_class(base: Base, members: Sequence[_Row]) -> set[str]:
    records = [base.record(row.member) for row in members]
    people = Counter(record["patient"].strip() for record in records)
    found = {"below k"} if len(people) < base.k else set()
    if 2 * max(people.values()) > len(records):
        found.add("share")
    means = [mean_of(records, name) for name in ("age", "income")]
    is_ordered = base.is_ordered  # its rows are compared as a whole, since they carry values of other members
    if not is_ordered and any(row.text != row_text(base, base.record(row.member), means) for row in members):
        found.add("value")
    return found


def _is_earlier_state(draft: Draft) -> bool:
    """Whether only the last rows of a release that gains nothing are missing, whose records may still be held."""
    base, ranks = draft.base, _ranks(draft.base)
    due = compose(base, draft.clusters)
    if draft.rows == due or any(rows != all_rows[: len(rows)] for rows, all_rows in zip(draft.rows, due, strict=True)):
        return False
    whole = Draft(base, draft.clusters)
    whole.recompose()
    if gains(whole):
        return False
    released = {row.member for row in _rows(base, draft.released_bytes()) if row is not None}
    newest = Counter({base.places[index][0]: rank for index, rank in ranks.items()})
    missing = [index for index in ranks if index not in released]
    return all(newest[base.places[index][0]] - ranks[index] < (base.delta or 0) for index in missing)


def _disorder(base: Base, rows: Sequence[_Row], classes: Sequence[Sequence[_Row]]) -> set[str]:
    if base.is_ordered:
        due: list[tuple[int, int, str]] = []
        for members in classes:
            records = [base.record(row.member) for row in members]
            means = [mean_of(records, name) for name in ("age", "income")]
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


def _is_out_of_sequence(base: Base, classes: Sequence[Sequence[_Row]], delta: int) -> bool:
    """Whether no order of decisions explains the order of the classes of a topic, if each was decided in time.

    A transaction holds the clusters that were decided since the one before, sorted by their first rows. So between two
    classes of which the second has the lower first row, a transaction ends: everything before was decided earlier than
    everything after. Of the classes between two such ends, the order by their oldest records delays them least.
    """
    if base.is_ordered:
        return False
    ranks = _ranks(base)
    for partition in {rows[0].partition for rows in classes}:
        decided: list[tuple[int, int, int]] = []
        transaction, first_row = 0, b""
        for rows in (rows for rows in classes if rows[0].partition == partition):
            first_row_before, first_row = first_row, min(row.text.encode() for row in rows)
            transaction += first_row < first_row_before
            found = [ranks[row.member] for row in rows]
            decided.append((transaction, min(found), max(found)))
        newest = -1
        for _, oldest, own_newest in sorted(decided):
            newest = max(newest, own_newest)
            if newest - oldest > delta:
                return True
    return False


def _losses(draft: Draft, released: set[int]) -> set[str]:
    base = draft.base
    ranks = _ranks(base)
    missing = sorted(ranks.keys() - released)
    if not missing:
        return set()
    if draft.quarantine is not None:
        listed = {
            (line.get("partition"), line.get("offset"))
            for line in map(json.loads, draft.quarantine)
            if isinstance(line, dict)
        }
        if any(base.places[index] not in listed for index in missing):
            return {"lost"}
    if base.is_table or base.delta is None:
        return {"lost"}
    if base.is_topic and draft.quarantine is not None:
        return set()  # a drain of the service may have suppressed them: the verdict calls them claimed
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
