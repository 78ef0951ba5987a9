"""Accounts: every record once, in one place, and a summary that says what the files say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from shoal.audit.check_counter import CheckCounter
from shoal.audit.evidence import ClaimedReference, Summary, is_whole
from shoal.audit.originals import Originals
from shoal.audit.reading import FARTHEST
from shoal.errors import InputError

__all__ = ["Facts", "balance_references", "balance_summary", "doubts_about_reading"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the judge counted itself; None where it could not.

    ``reached``: records up to the last one that was released or is referenced, all of those of a topic.
    """

    records: int
    reached: int
    rows: int
    clusters: int | None
    smallest: int | None
    largest: int | None
    fewest_subjects: int | None
    largest_share: float | None


def balance_references(
    originals: Originals, used: bytearray | None, references: Iterable[ClaimedReference], *, complete: bool
) -> list[CheckCounter]:
    """Judge the quarantine: each record released or referenced, once, and with ``complete`` one of them.

    ``used`` marks the released records; None if they are not known.
    """
    sound = CheckCounter(
        "references", "references name existing records that were not released, each once", "reference"
    )
    closed = CheckCounter("reasons", "references say where and one of four reasons, nothing else", "reference")
    topics: set[str] = set()
    seen = bytearray(len(originals))
    released = seen if used is None else used
    for number, reference in enumerate(references, 1):
        index = originals.find(reference.partition, reference.offset)
        sound.expect(index is not None and not released[index] and not seen[index], number)
        # A name of its own would say something of its record.
        topics.add(reference.topic)
        closed.expect(reference.closed and len(topics) == 1, number)
        if index is not None:
            seen[index] = 1
    whole = CheckCounter("complete", "every record was released or is referenced", "record")
    if used is None:
        sound.leave("which records were released is not known without evidence")
        whole.leave(sound.open)
    elif complete:
        for index, places in enumerate(zip(used, seen, strict=True)):
            if any(places) or index < len(originals) - 1 or originals.is_ended:
                whole.expect(any(places), index)
            else:
                whole.note = "the last record has no end: whoever follows a file does not read it, and it is not missed"
    return [sound, closed, whole] if complete else [sound, closed]


def balance_summary(summary: Summary, facts: Facts, name: str = "the summary") -> CheckCounter:
    """Compare a summary, called ``name`` in errors, with what was counted; what is null or missing is not compared.

    Raises
    ------
    InputError
        A field is no number, or no field is known: not a summary.
    """
    accounts = CheckCounter("accounts", "the summary balances and says what the files say", "field")
    if not summary.keys() & {"records_in", "records", "released", "clusters"}:
        raise InputError(f"{name}: none of its fields is known; give the file written by --summary")
    told = _Told(summary, name)
    parts = [told.total(name) for name in ("released", "suppressed", "quarantined", "held")]
    whole = told.total("records_in")
    if whole is not None and None not in parts:
        accounts.expect(whole == sum(part for part in parts if part is not None), "records_in, the sum")
    if whole is not None:
        # A file may have grown since it was read.
        accounts.expect(facts.reached <= whole <= facts.records, "records_in")
    records = told.total("records")
    if records is not None:
        accounts.expect(records in {facts.rows, facts.records}, "records")
    compared: list[tuple[str, float | None, float | None]] = [
        ("released", parts[0], facts.rows),
        ("clusters", told.total("clusters"), facts.clusters),
        ("cluster_size.min", told.part("cluster_size", "min"), facts.smallest),
        ("cluster_size.max", told.part("cluster_size", "max"), facts.largest),
        (
            "cluster_size.mean",
            told.part("cluster_size", "mean"),
            facts.rows / facts.clusters if facts.clusters else None,
        ),
        ("subjects.min", told.part("subjects", "min"), facts.fewest_subjects),
        ("share.max", told.part("share", "max"), facts.largest_share),
    ]
    for field, said, counted in compared:
        if said is not None and counted is not None:
            accounts.expect(_agree(said, counted), field)
    return accounts


def doubts_about_reading(summary: Summary, originals: Originals, name: str = "the summary") -> list[str]:
    """Warn where the run read fewer records, or refused more or fewer than do not fit by the judge's own reading."""
    said = _Told(summary, name)
    told, whole, count = said.total("quarantined"), said.total("records_in"), len(originals)
    read = count if whole is None else min(max(whole, 0), count)
    doubts = []
    if read < count:
        doubts.append(f"the summary counts {read} records read; the {count - read} that follow were not examined")
    unusable = read - originals.usable_of(read)
    if told is not None and told != unusable:
        doubts.append(
            f"the summary counts {told} quarantined records; {unusable} do not fit the policy by the judge's reading"
        )
    return doubts


def _agree(said: float, counted: float) -> bool:
    """Whether two numbers are equal; a fraction may have been rounded to four digits, a count may not."""
    if isinstance(counted, int):
        return said == counted
    return abs(said - counted) <= 5e-4 * abs(counted)


class _Told:
    """Reads numbers of a summary."""

    def __init__(self, summary: Summary, name: str) -> None:
        self._summary, self._name = summary, name

    def total(self, name: str) -> int | None:
        """Read a count, or the sum over its reasons."""
        value = self._summary.get(name)
        if isinstance(value, Mapping):
            return sum(self._count(name, part) for part in value.values())
        return None if value is None else self._count(name, value)

    def part(self, name: str, part: str) -> float | None:
        """Read one number of a group."""
        group = self._summary.get(name)
        value = group.get(part) if isinstance(group, Mapping) else None
        return None if value is None else self._number(f"{name}.{part}", value)

    def _count(self, field: str, value: object) -> int:
        if not is_whole(value):
            self._refuse(f"{field} must be a whole number")
        return value

    def _number(self, field: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= FARTHEST:
            self._refuse(f"{field} must be a number")
        return value

    def _refuse(self, words: str) -> NoReturn:
        raise InputError(f"{self._name}: {words}; give the file written by --summary")
