"""The original records, as arrays: who, where, what is kept; found by partition and offset."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from shoal.audit.embedded_record_check import EmbeddedRecordFinder
from shoal.audit.fields import Fields
from shoal.audit.reading import AROUND, ORIGINAL_EXPORT, File, Form, is_ended, names_of_first, original_records
from shoal.audit.tables import original_header
from shoal.errors import InputError
from shoal.policy import MessagePart, Policy

__all__ = ["Originals", "is_export", "read_originals"]

NOBODY = -1
_PART = {MessagePart.KEY: "key", MessagePart.HEADER: "headers", MessagePart.TIMESTAMP: "timestamp"}


@dataclass
class Originals:
    """All records of the original, in its order.

    ``values`` (n, d) float64 clipped, ``subjects`` (n,) int64 codes of people (-1: unusable), ``kept`` one text
    per record (None: unusable), ``places`` the index of a record by partition and offset.
    """

    values: npt.NDArray[np.float64]
    subjects: npt.NDArray[np.int64]
    kept: list[str | None]
    partitions: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    wrapped: bool
    file: File | None = None
    _places: dict[int, dict[int, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def usable(self) -> int:
        """Number of records that fit the policy."""
        return self.usable_of(len(self))

    def usable_of(self, first: int) -> int:
        """Number of those among the first so many records."""
        return int(np.count_nonzero(self.subjects[:first] != NOBODY))

    @cached_property
    def is_ended(self) -> bool:
        """Whether the last record has its end; else whoever followed the file may not have read it."""
        return self.file is None or is_ended(self.file)

    def find(self, partition: int, offset: int) -> int | None:
        """Index of a record; None if there is none."""
        if self.wrapped:
            return self._places.get(partition, {}).get(offset)
        return offset if partition == 0 and 0 <= offset < len(self.kept) else None

    def is_usable(self, index: int) -> bool:
        """Whether a cluster may hold this record."""
        return self.kept[index] is not None

    def kept_of(self, members: Iterable[int]) -> list[str]:
        """Kept texts of usable records."""
        return [text for text in map(self.kept.__getitem__, members) if text is not None]


def is_export(policy: Policy, file: File, needed: frozenset[str], more: frozenset[str] = frozenset()) -> bool:
    """Whether a file is an export of a topic; not if the policy declares just these fields itself."""
    if file.form == "csv":
        return False
    names = names_of_first(file.path)
    own = [{attribute.name for attribute in declared} for declared in (policy.value_attributes, policy.published)]
    return needed <= names <= needed | more and names not in own


def _exported(policy: Policy, file: File, *, wrapped: bool | None, by_line: bool) -> frozenset[str] | None:
    """Names that every line of an export must have; None for plain records.

    Raises
    ------
    InputError
        The policy reads keys, headers or timestamps, and the file has none.
    """
    if not policy.envelope_attributes:
        is_it = is_export(policy, file, ORIGINAL_EXPORT, AROUND) if wrapped is None else wrapped
        return ORIGINAL_EXPORT if is_it else None
    parts = {"value", *(_PART[attribute.source.part] for attribute in policy.envelope_attributes)}
    needed = frozenset(parts if by_line else parts | ORIGINAL_EXPORT)
    if file.form == "csv" or not needed <= names_of_first(file.path):
        source = policy.envelope_attributes[0]
        raise InputError(
            f"{file.path}, line 1: attributes.{source.name} is read from {source.source}: give JSON lines of "
            f"{', '.join(sorted(needed))}"
        )
    return needed


def read_originals(
    policy: Policy, file: File, released: Form, *, wrapped: bool | None = None, by_line: bool = False
) -> Originals:
    """Read the original file.

    Parameters
    ----------
    policy : Policy
        What the fields mean.
    file : File
        CSV, JSON lines or an export of a topic.
    released : {"csv", "jsonl"}
        Form of the release the records will be compared with.
    wrapped : bool, optional
        Whether it is an export; None: see for yourself.
    by_line : bool
        Whether the release names the lines of messages by their number, as `shoal pipe` does, and not by offset.

    Raises
    ------
    InputError
        Not readable, empty, or an export in which an offset stands twice.
    """
    path, form = file.path, file.form
    if form == "csv":
        original_header(path, file.dialect)
    names = _exported(policy, file, wrapped=wrapped, by_line=by_line)
    by_line = by_line and bool(policy.envelope_attributes)
    exported = names is not None and not by_line
    fields, strays = Fields(policy, form, released), EmbeddedRecordFinder(policy) if form == "csv" else None
    values, subjects, partitions, offsets = array("d"), array("q"), array("q"), array("q")
    kept: list[str | None] = []
    nothing = (0.0,) * len(policy.quasi_identifiers)
    people: dict[str, int] = {}
    places: dict[int, dict[int, int]] = {}
    for index, original in enumerate(original_records(file, names, by_line=by_line)):
        partition, offset, record, around = original
        if exported and places.setdefault(partition, {}).setdefault(offset, index) != index:
            raise InputError(f"{path}, line {index + 1}: this partition and offset stand twice; export again")
        found = None if strays is not None and record and strays.holds_another(record) else fields.take(record, around)
        partitions.append(partition)
        offsets.append(offset)
        values.extend(nothing if found is None else found.values)
        kept.append(None if found is None else found.kept)
        if found is None:
            subjects.append(NOBODY)
        else:
            # Without a declared subject every record is a person of its own.
            subjects.append(index if found.subject is None else people.setdefault(found.subject, len(people)))
    if not kept:
        raise InputError(f"{path}: no records, so there is nothing to compare with; give the original")
    return Originals(
        values=np.frombuffer(values, dtype=np.float64).reshape(len(kept), len(nothing)),
        subjects=np.frombuffer(subjects, dtype=np.int64),
        kept=kept,
        partitions=np.frombuffer(partitions, dtype=np.int64),
        offsets=np.frombuffer(offsets, dtype=np.int64),
        wrapped=exported,
        file=file,
        _places=places,
    )
