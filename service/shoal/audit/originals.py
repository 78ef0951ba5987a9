"""The records of the original as arrays, found by partition and offset.

A CSV record is unusable if one of its cells contains another record. An unpaired quote in the file causes this: the
cell then holds the fields of another subject.

The reasons for which a record that does not fit the policy may have been refused.

A reason is one of three words, so a false one could tell two bits of the record. Here each unusable record gets the
reasons that are possible for it: mostly one, and several where one text has several faults, or where the file does not
show a length.

The one spelling of CSV cells and records: with the fewest quotes.

Bounds of the bytes that are compared with ``kafka.max_record_bytes``.

Three lengths are limited: the length of a message, the length of each key and header that the policy reads, and the
length of the categories of a record and its unchanged fields as they are published. Separators between these fields and
the quasi-identifiers do not count. A category has a limit of its own, which `shoal.audit.fields` checks.

The original shows these lengths exactly, with two exceptions: messages that an export contains as JSON objects, and
rows of Parquet. Their lengths are estimated by a smallest and a largest one. A record is certainly too large if the
smallest length exceeds the limit. It is certainly not too large if the largest length does not exceed it.
"""

from __future__ import annotations

import csv
import json
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntFlag
from functools import cached_property
from itertools import groupby, takewhile

import numpy as np
import numpy.typing as npt

from shoal.audit.fields import (
    FIELD_SEPARATOR,
    MOST_CATEGORY_BYTES,
    Dropped,
    RecordReader,
    UsableRecord,
    input_path,
    merged_subject,
    nested_order,
    output_path,
)
from shoal.audit.reading import (
    ENVELOPE_FIELDS,
    ORIGINAL_EXPORT,
    Form,
    InputFile,
    OriginalRecord,
    Outcome,
    Record,
    first_line_names,
    has_lone_surrogate,
    is_blank,
    is_ended,
    is_parquet,
    json_text,
    original_header,
    original_records,
)
from shoal.audit.scales import Categories, DecimalSign, value_reader
from shoal.errors import InputError
from shoal.policy import Attribute, CsvDialect, MessagePart, Policy, Role, Scale

__all__ = [
    "DEFAULT_MAX_BYTES",
    "UNKNOWN_TIMESTAMP",
    "UNUSABLE",
    "EmbeddedRecordFinder",
    "Originals",
    "Refusal",
    "RefusalReader",
    "SizeBounds",
    "csv_cell",
    "csv_line",
    "is_export_of",
    "read_originals",
]

MOST_GROWTH = 8
"""A text that is written is at most so many times as long as it was read: escapes, digits of numbers, bytes."""


class Refusal(IntFlag):
    """Possible reasons of one record. `NONE`: the record fits the policy, or is dropped."""

    NONE = 0
    UNDECODABLE = 1
    INVALID = 2
    TOO_LARGE = 4

    @classmethod
    def named(cls, word: str) -> Refusal:
        """Return the reason of a reference or a summary; NONE if it is no reason of a refusal."""
        return next((reason for reason in cls if reason.word == word), cls.NONE)

    @property
    def word(self) -> str:
        """The word of one reason."""
        return str(self.name).lower()


_DECODED = {
    Outcome.UNDECODABLE: Refusal.UNDECODABLE,
    Outcome.NO_RECORD: Refusal.INVALID,
    Outcome.UNCLEAR: Refusal.UNDECODABLE | Refusal.INVALID,
}


class RefusalReader:
    """Finds the possible reasons of unusable records.

    Parameters
    ----------
    policy : Policy
    form : {"csv", "jsonl"}
        Form of the original.
    max_bytes : int
        The limit ``kafka.max_record_bytes``.
    is_measured : bool
        Whether the original shows how many bytes each record had: not so in Parquet.
    """

    def __init__(self, policy: Policy, form: Form, max_bytes: int, *, is_measured: bool) -> None:
        self._form, self._max_bytes, self._is_measured = form, max_bytes, is_measured
        self._is_wrapped = policy.unwrap is not None
        self._parts = {a.name: str(a.source) for a in policy.envelope_attributes}
        nominal = [a for a in policy.clustered if a.scale is Scale.NOMINAL]
        is_in_envelope = [a.source.part is not MessagePart.VALUE for a in nominal]
        self._most_part_bytes = min(MOST_CATEGORY_BYTES, max_bytes) if any(is_in_envelope) else max_bytes
        self._limits = {a.name: MOST_CATEGORY_BYTES for a in nominal}
        self._json_limits = {a.name: a.max_bytes for a in policy.unchanged_fields if a.type == "json"}

    def of(self, original: OriginalRecord, content: Record | Dropped | None) -> Refusal:
        """Return the possible reasons of an unusable record.

        Parameters
        ----------
        original : OriginalRecord
        content : mapping, Dropped or None
            Its fields by the names of their attributes; why it is dropped unless it is too large; None if it has none.
        """
        if isinstance(content, Dropped):
            return Refusal.TOO_LARGE if original.size > self._max_bytes else Refusal.NONE
        found = self._content_reasons(original, content)
        if self._parts:
            # The parts of a message are read one after the other, each with a reason of its own.
            found |= Refusal.INVALID
            if not original.envelope.keys() >= set(self._parts.values()):
                return found | Refusal.UNDECODABLE | Refusal.TOO_LARGE  # it is missing, or of bytes that are no text
            if has_lone_surrogate(list(original.envelope.values())):
                found |= Refusal.UNDECODABLE
        return found | (Refusal.TOO_LARGE if self._may_be_too_large(original, content) else Refusal.NONE)

    def _content_reasons(self, original: OriginalRecord, content: Record | None) -> Refusal:
        if original.record is None or original.outcome is not Outcome.RECORD:
            return _DECODED.get(original.outcome, Refusal.INVALID)
        if has_lone_surrogate(list(original.record.items())):
            return Refusal.UNDECODABLE | Refusal.INVALID
        if content is None and self._is_wrapped:
            return Refusal.UNDECODABLE | Refusal.INVALID  # a payload of null is no message
        return Refusal.INVALID

    def _may_be_too_large(self, original: OriginalRecord, content: Record | None) -> bool:
        is_empty = not original.size and original.outcome is Outcome.UNDECODABLE
        is_unknown = not ((original.size and self._is_measured) or is_empty)
        if self._form == "jsonl" and (is_unknown or original.size > self._max_bytes):
            return True
        if _written_bytes(original.envelope.values()) > self._most_part_bytes:
            return True
        if content is None:
            return False
        fields = {**content, **{name: original.envelope[source] for name, source in self._parts.items()}}
        return MOST_GROWTH * _written_bytes(fields.values()) > self._max_bytes or any(
            growth * _written_bytes([fields[name]]) > limit
            for growth, limits in ((1, self._limits), (MOST_GROWTH, self._json_limits))
            for name, limit in limits.items()
            if name in fields
        )


def _written_bytes(values: Iterable[object]) -> int:
    return sum(len(json_text(value).encode(errors="surrogatepass")) for value in values)


def csv_line(cells: list[str], dialect: CsvDialect) -> str:
    """Write one CSV record with the fewest quotes, without line end."""
    return dialect.delimiter.join([csv_cell(cell, dialect) for cell in cells])


def csv_cell(text: str, dialect: CsvDialect) -> str:
    """Write a cell, in quotes if it contains the delimiter, a quote, a line end, or an escape of the dialect."""
    quote = dialect.quote
    special = [dialect.delimiter, quote, "\n", "\r"]
    if dialect.escape == "doubled":
        inner = text.replace(quote, quote * 2)
    else:
        special.append("\\")
        inner = text.replace("\\", "\\\\").replace(quote, "\\" + quote)
    return quote + inner + quote if any(character in text for character in special) else text


DEFAULT_MAX_BYTES = 900_000
"""``kafka.max_record_bytes`` if the policy has no section ``kafka``."""


class SizeBounds:
    """Computes the fewest and the most bytes that are compared with the limit, of one record after the other.

    Parameters
    ----------
    policy : Policy
    released : {"csv", "jsonl"}
        Form of the release.
    is_measured : bool
        Whether each record of the original has a length of its own that is limited. Cells of a CSV file have none.
    is_binary : bool
        Whether the original is a Parquet file, whose records have no known length.
    """

    def __init__(self, policy: Policy, released: Form, *, is_measured: bool, is_binary: bool = False) -> None:
        self._is_measured, self._is_binary = is_measured, is_binary
        self._parts = [
            str(attribute.source)
            for attribute in policy.envelope_attributes
            if attribute.source.part is not MessagePart.TIMESTAMP
        ]
        self._is_csv, self._dialect = released == "csv", policy.csv_output
        self._has_fields = bool(policy.unchanged_fields)
        between = len(self._dialect.delimiter.encode()) if self._is_csv else 1
        by_path = {output_path(attribute): attribute for attribute in policy.published}
        paths = list(by_path) if self._is_csv else nested_order(by_path)
        is_unchanged = [by_path[path].role is not Role.QUASI_IDENTIFIER for path in paths]
        sizes = [len(list(run)) for unchanged, run in groupby(is_unchanged) if unchanged]
        # The engine stores one byte between two runs of unchanged fields, and writes a delimiter inside a run.
        self._overhead = sum(between * (size - 1) for size in sizes) + max(0, len(sizes) - 1)
        if not self._is_csv:
            around = zip(is_unchanged, paths, [(), *paths], [*paths[1:], ()], strict=False)
            self._overhead += sum(_bytes_around(path, before, after) for found, path, before, after in around if found)

    def of_record(self, original: OriginalRecord, found: UsableRecord) -> tuple[int, int]:
        """Return the bounds for a usable record as it was read."""
        size = 0 if self._is_binary else original.size
        return self.of(original.record, original.envelope, size, found.unchanged, found.category_bytes)

    def of(
        self, record: Record | None, envelope: Record, size: int, unchanged: str, categories: int = 0
    ) -> tuple[int, int]:
        """Return the bounds for a usable record.

        Parameters
        ----------
        record, envelope : mapping
            As read from the original.
        size : int
            Bytes of the record; 0 if they are not known, as those of Parquet, or if the record was read as cells.
        unchanged : str
            Texts of the unchanged fields, separated by `FIELD_SEPARATOR`.
        categories : int
            Bytes of the published categories as JSON.
        """
        parts = max((len(str(envelope[part]).encode()) for part in self._parts if part in envelope), default=0)
        fewest = max(size, parts, self._unchanged(unchanged) + categories)
        if self._is_measured and not size:
            cells = sum(len(name) + len(str(value)) for name, value in (record or {}).items())
            return fewest, max(fewest, 2 * cells)
        return fewest, fewest

    def _unchanged(self, unchanged: str) -> int:
        if not self._has_fields:
            return 0
        return self._overhead + sum(map(self._field, unchanged.split(FIELD_SEPARATOR)))

    def _field(self, text: str) -> int:
        """Return the bytes of one unchanged field, from its text in JSON."""
        if self._is_csv and text.startswith('"'):
            cell: str = json.loads(text)
            return len(csv_cell(cell, self._dialect).encode())
        return 0 if self._is_csv and text == "null" else len(text.encode())


def _bytes_around(path: tuple[str, ...], before: tuple[str, ...], after: tuple[str, ...]) -> int:
    """Return the bytes of a JSON field without its value: names, and braces of the objects that it opens and closes."""
    opened, closed = path[_common(path, before) : -1], len(path) - 1 - _common(path, after)
    names = sum(len(json_text(name).encode()) + 1 for name in (*opened, path[-1]))
    return names + len(opened) + closed


def _common(path: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Return how many objects contain both fields."""
    pairs = zip(path[:-1], other[:-1], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


UNUSABLE = -1
"""Subject code of an unusable record."""
UNKNOWN_TIMESTAMP = -1
_ENVELOPE_FIELD = {MessagePart.KEY: "key", MessagePart.HEADER: "headers", MessagePart.TIMESTAMP: "timestamp"}


@dataclass
class Originals:
    """All n records of the original, in its order.

    Attributes
    ----------
    values : ndarray of float64, shape (n, d)
        Quasi-identifiers: clipped numbers, milliseconds of times, ranks, and codes of categories; NaN where a value is
        missing, zeros where the record is unusable.
    subjects : ndarray of int64, shape (n,)
        Equal codes for equal subjects; -1 where the record is unusable.
    merged : ndarray of int64, shape (number of subjects,), or None
        By subject code: equal for subjects that every step of ``normalize`` would make one. None if the subject is no
        text, or every record is a subject of its own.
    unchanged : list of (str or None), length n
        Texts of the unchanged fields; None where the record is unusable.
    partitions, offsets : ndarray of int64, shape (n,)
    is_export : bool
        Whether the file is an export of a topic. Else offsets are the numbers of the records, from 0.
    timestamps : ndarray of int64, shape (n,)
        Timestamps of messages (ms); -1 where the file has none.
    sizes : ndarray of int64, shape (n, 2)
        Fewest and most bytes that are compared with ``kafka.max_record_bytes``; 0 where the record is unusable.
    file : InputFile, optional
        The file that was read.
    was_read_whole : bool
        Whether a summary counts all records as read. Then a last record without end was read like the others.
    categories : sequence of (Categories or None), length d
        The categories of each nominal quasi-identifier; None for other scales. Empty if there is none.
    drops : dict of Dropped to list of int
        Indices of the messages that are no records and are dropped, as the policy says of deletes and tombstones.
    released : {"csv", "jsonl"}
        Form of the release that the records are compared with.
    refusals : ndarray of uint8, shape (n,)
        The reasons for which each record may have been refused, as `Refusal`; 0 where the record fits the policy.
    may_be_followed : bool
        Whether a run with ``--follow`` may have read the file. It reads no topic, and not for an ordered release.
    """

    values: npt.NDArray[np.float64]
    subjects: npt.NDArray[np.int64]
    unchanged: list[str | None]
    partitions: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    is_export: bool
    timestamps: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    sizes: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    file: InputFile | None = None
    was_read_whole: bool = False
    merged: npt.NDArray[np.int64] | None = None
    may_be_followed: bool = True
    released: Form = "jsonl"
    categories: Sequence[Categories | None] = ()
    drops: dict[Dropped, list[int]] = field(default_factory=dict)
    refusals: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    _index: dict[int, dict[int, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.unchanged)

    @cached_property
    def is_dropped(self) -> npt.NDArray[np.bool_]:
        """Which messages are dropped, shape (n,)."""
        found = np.zeros(len(self), np.bool_)
        for indices in self.drops.values():
            found[indices] = True
        return found

    @property
    def records(self) -> int:
        """Number of records, without dropped messages."""
        return len(self) - sum(map(len, self.drops.values()))

    def end_of(self, records: int) -> int:
        """Return the number of first lines that hold this number of records, with the dropped ones after them."""
        if self.records == len(self):
            return min(max(records, 0), len(self))
        return int(np.count_nonzero(np.cumsum(~self.is_dropped) <= records))

    def records_of(self, first: int) -> int:
        """Number of records among the first lines."""
        return min(first, len(self)) - int(np.count_nonzero(self.is_dropped[:first]))

    @property
    def usable(self) -> int:
        """Number of usable records."""
        return self.usable_of(len(self))

    def usable_of(self, first: int) -> int:
        """Number of usable records among the first ones."""
        return int(np.count_nonzero(self.subjects[:first] != UNUSABLE))

    def unusable_of(self, first: int) -> int:
        """Number of records among the first lines that do not fit the policy. A dropped message is no record."""
        return self.records_of(first) - self.usable_of(first)

    @cached_property
    def by_partition(self) -> dict[int, npt.NDArray[np.int64]]:
        """Indices of the records of each partition in the order of their offsets. Cost: O(n log n), once.

        The lines of an export may be in any order. A service reads records in that of the offsets.
        """
        by_offset = np.argsort(self.offsets, kind="stable")
        partitions = self.partitions[by_offset]
        return {int(one): by_offset[partitions == one] for one in np.unique(partitions)}

    @cached_property
    def is_ended(self) -> bool:
        """Whether the last record was read or is complete. A run with ``--follow`` does not read one that is not."""
        if self.was_read_whole or not self.may_be_followed or self.file is None or not self.unchanged:
            return True
        return is_ended(self.file)

    def find(self, partition: int, offset: int) -> int | None:
        """Return the index of a record; None if it does not exist."""
        if self.is_export:
            return self._index.get(partition, {}).get(offset)
        return offset if partition == 0 and 0 <= offset < len(self.unchanged) else None

    def count_categories(self, is_member: npt.NDArray[np.bool_]) -> None:
        """Count how many members of clusters have each category. ``is_member``: bool, shape (n,). Cost: O(n)."""
        for column, categories in enumerate(self.categories):
            if categories is not None:
                codes = self.values[is_member, column]
                known = codes[~np.isnan(codes)].astype(np.int64)
                categories.counts = Counter(dict(enumerate(np.bincount(known).tolist())))

    def is_usable(self, index: int) -> bool:
        """Whether a record fits the policy, so that a cluster may hold it."""
        return self.unchanged[index] is not None

    def unchanged_of(self, members: Iterable[int]) -> list[str]:
        """Return the texts of the unchanged fields of the usable ones among these records."""
        return [text for text in map(self.unchanged.__getitem__, members) if text is not None]


def is_export_of(
    policy: Policy, file: InputFile, required: frozenset[str], optional: frozenset[str] = frozenset()
) -> bool:
    """Whether the first line of a file is one of an export, and not a record with just these declared fields."""
    if file.form == "csv":
        return False
    names = first_line_names(file.path)
    declared = [{input_path(a)[0] for a in policy.value_attributes}, {output_path(a)[0] for a in policy.published}]
    return required <= names <= required | optional and names not in declared


def _export_names(policy: Policy, file: InputFile, *, is_export: bool | None, by_line: bool) -> frozenset[str] | None:
    """Return the names that every line of an export must have; None for plain records.

    Raises
    ------
    InputError
        The policy reads keys, headers or timestamps, and the file has none.
    """
    if not policy.envelope_attributes:
        found = is_export_of(policy, file, ORIGINAL_EXPORT, ENVELOPE_FIELDS) if is_export is None else is_export
        return ORIGINAL_EXPORT if found else None
    read = {"value", *(_ENVELOPE_FIELD[attribute.source.part] for attribute in policy.envelope_attributes)}
    required = frozenset(read if by_line else read | ORIGINAL_EXPORT)
    if file.form != "csv" and is_blank(file.path):
        return required
    if file.form == "csv" or not required <= first_line_names(file.path):
        attribute = policy.envelope_attributes[0]
        raise InputError(
            f"{file.path}, line 1: attributes.{attribute.name} is read from {attribute.source}: give JSON lines of "
            f"{', '.join(sorted(required))}"
        )
    return required


def read_originals(
    policy: Policy, file: InputFile, released: Form, *, is_export: bool | None = None, by_line: bool = False
) -> Originals:
    """Read the original.

    Parameters
    ----------
    policy : Policy
    file : InputFile
        CSV, JSON lines, Parquet or an export of a topic.
    released : {"csv", "jsonl"}
        Form of the release that the records will be compared with.
    is_export : bool, optional
        Whether the file is an export; None: decide by its first line.
    by_line : bool
        Whether the evidence names messages by line, as that of `shoal pipe` does, and not by offset.

    Raises
    ------
    InputError
        The file is not readable, or is an export in which an offset is repeated.

    Notes
    -----
    Cost: O(n) time and memory.
    """
    path, form = file.path, file.form
    if form == "csv":
        file = replace(file, columns=frozenset(attribute.name for attribute in policy.attributes))
        original_header(path, file.dialect, file.columns)
    names = _export_names(policy, file, is_export=is_export, by_line=by_line)
    by_line = by_line and bool(policy.envelope_attributes)
    has_offsets = names is not None and not by_line
    reader, embedded = RecordReader(policy, form, released, is_parquet=is_parquet(path)), EmbeddedRecordFinder(policy)
    values, subjects, partitions, offsets = array("d"), array("q"), array("q"), array("q")
    timestamps, sizes = array("q"), array("q")
    drops: dict[Dropped, list[int]] = {reason: [] for reason in Dropped}
    max_bytes = DEFAULT_MAX_BYTES if policy.kafka is None else policy.kafka.max_record_bytes
    size_bounds = SizeBounds(policy, released, is_measured=form != "csv", is_binary=is_parquet(path))
    refusal_reader = RefusalReader(policy, form, max_bytes, is_measured=not is_parquet(path))
    refusals = array("B")
    unchanged: list[str | None] = []
    zeros = (0.0,) * len(policy.quasi_identifiers)
    codes: dict[str, int] = {}
    indices: dict[int, dict[int, int]] = {}
    clustered = {attribute.name for attribute in policy.clustered}
    for index, original in enumerate(original_records(file, names, by_line=by_line, clustered=clustered)):
        partition, offset, record, envelope, size, _ = original
        if has_offsets and indices.setdefault(partition, {}).setdefault(offset, index) != index:
            raise InputError(f"{path}, line {index + 1}: this partition and offset are repeated; export again")
        if form == "csv" and record and embedded.contains_record(record):
            record = None
        content = reader.content(record)
        found = None if isinstance(content, Dropped) else reader.read(content, envelope)
        if isinstance(content, Dropped) and size <= max_bytes:
            # One that is too large is quarantined, whatever it contains.
            drops[content].append(index)
        partitions.append(partition)
        offsets.append(offset)
        values.extend(zeros if found is None else found.values)
        unchanged.append(None if found is None else found.unchanged)
        timestamps.append(int(str(envelope.get("timestamp", UNKNOWN_TIMESTAMP))))
        sizes.extend((0, 0) if found is None else size_bounds.of_record(original, found))
        subjects.append(_subject_code(found, index, codes))
        refusals.append(0 if found is not None else refusal_reader.of(original, content))
    return Originals(
        values=np.frombuffer(values, dtype=np.float64).reshape(len(unchanged), len(zeros)),
        subjects=np.frombuffer(subjects, dtype=np.int64),
        unchanged=unchanged,
        partitions=np.frombuffer(partitions, dtype=np.int64),
        offsets=np.frombuffer(offsets, dtype=np.int64),
        is_export=has_offsets,
        timestamps=np.frombuffer(timestamps, dtype=np.int64),
        sizes=np.frombuffer(sizes, dtype=np.int64).reshape(-1, 2),
        file=file,
        merged=_merge_subjects(policy, codes),
        may_be_followed=not has_offsets and policy.stream is not None and not policy.stream.is_ordered,
        drops=drops,
        refusals=np.frombuffer(refusals, dtype=np.uint8),
        released=released,
        categories=reader.categories if any(reader.categories) else (),
        _index=indices,
    )


def _subject_code(found: UsableRecord | None, index: int, codes: dict[str, int]) -> int:
    """Return the code of a record's subject. Without a declared one every record is a subject of its own."""
    if found is None:
        return UNUSABLE
    return index if found.subject is None else codes.setdefault(found.subject, len(codes))


def _merge_subjects(policy: Policy, codes: Iterable[str]) -> npt.NDArray[np.int64] | None:
    """Return the codes of subjects, in their order, after every step of ``normalize``."""
    subject = policy.subject
    if subject is None or subject.type not in {"string", "any"}:
        return None
    merged: dict[str, int] = {}
    kind = subject.type
    found = [merged.setdefault(merged_subject(text, kind) or text, len(merged)) for text in codes]
    return np.array(found, dtype=np.int64)


class EmbeddedRecordFinder:
    """Finds CSV records in which a cell contains what would be a record by itself.

    Parameters
    ----------
    policy : Policy
        Gives the dialect and the quasi-identifiers. ``csv.multiline`` allows such cells.
    """

    def __init__(self, policy: Policy) -> None:
        self._dialect: CsvDialect = policy.csv
        sign = DecimalSign(policy.csv.decimal)
        # Any number stands for a record here, whatever its bounds.
        self._readers = [
            (a.name, value_reader(_without_limits(a), "csv", sign, policy.missing_values, None))
            for a in policy.clustered
        ]

    def contains_record(self, record: Record) -> bool:
        """Whether a line of a cell is a record, or a cell joins the first part of one record to the last of another."""
        cells = [str(cell) for cell in record.values()]
        if self._dialect.multiline or not any(end in cell for cell in cells for end in "\r\n"):
            return False
        names = list(record)
        for column, cell in enumerate(cells):
            lines = cell.replace("\r\n", "\n").replace("\r", "\n").split("\n")
            if len(lines) < 2:  # noqa: PLR2004 - a cell of one line contains no other record
                continue
            if any(self._is_record(names, found) for line in lines for found in self._readings(line)):
                return True
            before = cells[:column] + self._split(lines[0])
            after = self._split(lines[-1]) + cells[column + 1 :]
            if self._is_record(names, before) and self._is_record(names, after):
                return True
        return False

    def _split(self, line: str) -> list[str]:
        return [cell.strip(" \t").strip(self._dialect.quote) for cell in line.split(self._dialect.delimiter)]

    def _readings(self, line: str) -> list[list[str]]:
        """Return the cells of a line, read once without regard to quotes and once with them."""
        reader = csv.reader([line], delimiter=self._dialect.delimiter, quotechar=self._dialect.quote)
        return [self._split(line), *reader]

    def _is_record(self, names: list[str], cells: list[str]) -> bool:
        if len(cells) != len(names):
            return False
        found = dict(zip(names, cells, strict=True))
        return all(read(found[name]) is not None for name, read in self._readers)


def _without_limits(attribute: Attribute) -> Attribute:
    return replace(attribute, limits=(-math.inf, math.inf), clip=True, integer=False)
