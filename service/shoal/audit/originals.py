"""The records of the original as arrays, found by partition and offset.

A CSV record is unusable if one of its cells contains another record, as an unpaired quote in the file causes it.

Three lengths are compared with ``kafka.max_record_bytes``: of a message, of each key and header that the policy reads,
and of the categories with the unchanged fields as they are published. The original shows them exactly, but for messages
that an export contains as JSON objects and rows of Parquet: these have a smallest and a largest possible length.
"""

from __future__ import annotations

import csv
import json
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, takewhile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shoal.audit.fields import (
    FIELD_SEPARATOR,
    ChosenTexts,
    Dropped,
    Int64Vector,
    RecordReader,
    Tallies,
    Texts,
    UsableRecord,
    input_path,
    merged_subject,
    nested_order,
    output_path,
    subject_of_number,
    text_codes,
    whole_subject,
)
from shoal.audit.reading import (
    ENVELOPE_FIELDS,
    INTEGER,
    ORIGINAL_EXPORT,
    FieldColumns,
    Form,
    InputFile,
    OriginalRecord,
    Record,
    canonical_float,
    first_line_names,
    is_blank,
    is_ended,
    is_parquet,
    json_text,
    line_record,
    original_header,
    original_parts,
    original_records,
)
from shoal.audit.scales import (
    JUDGED_SCALES,
    DecimalSign,
    PublishedCategories,
    PublishedValues,
    decimal_number,
    value_reader,
)
from shoal.errors import InputError
from shoal.policy import Attribute, CsvDialect, MessagePart, Policy, Role

DEFAULT_MAX_BYTES = 900_000  # ``kafka.max_record_bytes`` if the policy has no section ``kafka``
MOST_RECORDS = (1 << 31) - 1  # so that counts of them fit 32 bits
UNUSABLE = -1  # subject code of an unusable record
UNKNOWN_TIMESTAMP = -1
_ENVELOPE_FIELD = {MessagePart.KEY: "key", MessagePart.HEADER: "headers", MessagePart.TIMESTAMP: "timestamp"}


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


def max_record_bytes(policy: Policy) -> int:
    """Return ``kafka.max_record_bytes``, or its default if the policy has no section ``kafka``."""
    return DEFAULT_MAX_BYTES if policy.kafka is None else policy.kafka.max_record_bytes


class SizeBounds:
    """Computes the fewest and the most bytes that are compared with the limit, of one record after the other."""

    def __init__(self, policy: Policy, released: Form, *, is_measured: bool, is_binary: bool = False) -> None:
        self._is_measured, self._is_binary = is_measured, is_binary
        self._parts = [
            str(attribute.source)
            for attribute in policy.envelope_attributes
            if attribute.source.part is not MessagePart.TIMESTAMP
        ]
        self._is_csv, self._dialect = released == "csv", policy.csv_output
        self._has_fields, self._fields = bool(policy.unchanged_fields), len(policy.published)
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

    def of_columns(self, longest: int) -> int:
        """Return bytes that no record exceeds, whose fields and categories have so many characters before quotes."""
        return self._overhead + 8 * (longest + self._fields)

    def of_lines(self, lines: Sequence[str]) -> int:
        """Return bytes that none of these records exceeds as it was read."""
        return 8 * max(map(len, lines)) if self._is_measured else 0

    def of(self, original: OriginalRecord, found: UsableRecord) -> tuple[int, int]:
        """Return the bounds for a usable record as it was read."""
        envelope = original.envelope
        size = 0 if self._is_binary else original.size
        parts = max((len(str(envelope[part]).encode()) for part in self._parts if part in envelope), default=0)
        unchanged = found.unchanged.split(FIELD_SEPARATOR) if self._has_fields else []
        published = self._overhead + sum(map(self._field, unchanged)) + found.category_bytes
        fewest = max(size, parts, published)
        if self._is_measured and not size:
            cells = sum(len(name) + len(str(value)) for name, value in (original.record or {}).items())
            return fewest, max(fewest, 2 * cells)
        return fewest, fewest

    def _field(self, text: str) -> int:
        """Return the bytes of one unchanged field, from its text in JSON."""
        if self._is_csv and text.startswith('"'):
            cell: str = json.loads(text)
            return len(csv_cell(cell, self._dialect).encode())
        return 0 if self._is_csv and text == "null" else len(text.encode())


@dataclass
class Originals:
    """All n records of the original, in its order."""

    values: npt.NDArray[np.float64]  # as `shoal.audit.scales` reads them; zeros where the record is unusable
    subjects: npt.NDArray[np.int64]  # equal codes for equal subjects; -1 where the record is unusable
    unchanged: Texts  # texts of the unchanged fields; empty where the record is unusable
    partitions: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]  # of a plain file the numbers of the records, from 0: also their indices
    is_export: bool
    timestamps: Int64Vector = field(default_factory=lambda: np.zeros(0, np.int64))  # of an export, in ms; -1 for none
    # Whether a usable record exceeds ``kafka.max_record_bytes`` for certain, and whether it may, shape (n, 2).
    is_above_limit: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 2), np.bool_))
    file: InputFile | None = None
    was_read_whole: bool = False  # a summary counts all records as read, the last one even without end
    # By subject code: equal for subjects that every step of ``normalize`` would make one; None if they are no texts.
    merged: npt.NDArray[np.int64] | None = None
    may_be_followed: bool = True  # a run with ``--follow`` reads no topic, and not for an ordered release
    released: Form = "jsonl"
    drops: dict[Dropped, list[int]] = field(default_factory=dict)  # indices of dropped messages, no records
    tallies: Tallies | None = None

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
        """Indices of the records of each partition in the order of their offsets. Cost: O(n log n), once."""
        if not self.is_export:
            return {0: self.offsets} if len(self) else {}
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
        index = int(self.find_all(partition, np.array([offset]))[0])
        return None if index < 0 else index

    def find_all(self, partition: int, offsets: Int64Vector) -> Int64Vector:
        """Return the indices of records; -1 for one that does not exist."""
        if not self.is_export:
            return np.where((offsets >= 0) & (offsets < len(self)) & (partition == 0), offsets, -1)
        chosen = self.by_partition.get(partition)
        if chosen is None:
            return np.full(len(offsets), -1)
        known = self.offsets_of(partition)
        places = np.minimum(np.searchsorted(known, offsets), len(known) - 1)
        return np.where(known[places] == offsets, chosen[places], -1)

    def offsets_of(self, partition: int) -> Int64Vector:
        """Return the offsets of the records of a partition in their order."""
        return self._sorted_offsets[partition] if self.is_export else self.offsets

    @cached_property
    def _sorted_offsets(self) -> dict[int, Int64Vector]:
        return {partition: self.offsets[chosen] for partition, chosen in self.by_partition.items()}

    def first_repeated(self) -> int | None:
        """Return the first record with the partition and offset of an earlier one; None if there is none."""
        pairs = ((self.offsets_of(partition), chosen) for partition, chosen in self.by_partition.items())
        later = [chosen[1:][np.diff(offsets) == 0] for offsets, chosen in pairs]
        return min((int(indices.min()) for indices in later if len(indices)), default=None)

    def is_usable(self, index: int) -> bool:
        """Whether a record fits the policy, so that a cluster may hold it."""
        return bool(self.subjects[index] != UNUSABLE)

    def unchanged_of(self, indices: Int64Vector) -> ChosenTexts:
        """Return the texts of the unchanged fields of the usable ones among these records."""
        return ChosenTexts(self.unchanged, indices[self.subjects[indices] != UNUSABLE])


def is_export_of(
    policy: Policy, file: InputFile, required: frozenset[str], optional: frozenset[str] = frozenset()
) -> bool:
    """Whether the first line of a file is one of an export, and not a record with just these declared fields."""
    if file.form == "csv":
        return False
    names = first_line_names(file.path)
    declared = [{input_path(a)[0] for a in policy.value_attributes}, {output_path(a)[0] for a in policy.published}]
    return required <= names <= required | optional and names not in declared


def read_originals(
    policy: Policy,
    file: InputFile,
    released: Form,
    *,
    published: Sequence[PublishedValues] = (),
    is_export: bool | None = None,
    by_line: bool = False,
) -> Originals:
    """Read the original. Cost: O(n) time and memory.

    ``published`` gets the categories of nominal attributes. ``is_export``: None decides by the first line. ``by_line``:
    the evidence names messages by line, as that of `shoal pipe` does, and not by offset.
    """
    path, form = file.path, file.form
    if form == "csv":
        file = replace(file, columns=frozenset(attribute.name for attribute in policy.attributes))
        original_header(path, file.dialect, file.columns)
    file = replace(file, constants={part: _folder_fields(policy, file.folder_values(part)) for part in file.parts})
    names = _export_names(policy, file, is_export=is_export, by_line=by_line)
    by_line = by_line and bool(policy.envelope_attributes)
    has_offsets = names is not None and not by_line
    found = _Collected(policy, file, released, published, has_offsets=has_offsets)
    clustered = {attribute.name for attribute in policy.clustered}
    if names is None:
        for part in original_parts(file, found.reader.columns_of, clustered):
            if isinstance(part, FieldColumns):
                found.add_columns(part)
            else:
                found.add(part)
    else:
        for original in original_records(file, names, by_line=by_line, clustered=clustered):
            found.add(original)
    return _countable(found.originals(), path)


def _folder_fields(policy: Policy, values: Mapping[str, str | None]) -> dict[str, str]:
    """Return the declared fields that the names of folders give, as JSON: numbers and truth values as declared."""
    found = {}
    for attribute in policy.value_attributes:
        if attribute.name not in values:
            continue
        text = values[attribute.name]
        is_number = attribute.type in {"integer", "number"}
        if attribute.is_clustered:
            is_number = JUDGED_SCALES[attribute.scale].is_amount or attribute.unit is not None
        number = None if text is None or not is_number else decimal_number(text)
        if number is not None:
            found[attribute.name] = str(int(str(text))) if INTEGER.fullmatch(str(text)) else canonical_float(number)
        elif attribute.type == "boolean" and text in {"true", "false"}:
            found[attribute.name] = str(text)
        else:
            found[attribute.name] = json_text(text)
    return found


class _Collected:
    """The records of an original that were read so far."""

    def __init__(
        self,
        policy: Policy,
        file: InputFile,
        released: Form,
        published: Sequence[PublishedValues],
        *,
        has_offsets: bool,
    ) -> None:
        self._policy, self._file, self._released, self._has_offsets = policy, file, released, has_offsets
        self.reader, self._embedded = _record_reader(policy, file, released, published), EmbeddedRecordFinder(policy)
        is_binary = is_parquet(file.path)
        self._sizes = SizeBounds(policy, released, is_measured=file.form != "csv", is_binary=is_binary)
        self._limit = max_record_bytes(policy)
        self._values, self._zeros = array("d"), (0.0,) * len(policy.quasi_identifiers)
        self._is_usable, self._is_above_limit = bytearray(), bytearray()
        self._partitions, self._offsets, self._timestamps = array("q"), array("q"), array("q")
        self._unchanged = Texts()
        self._subjects = _Subjects(policy)
        self._drops: dict[Dropped, list[int]] = {reason: [] for reason in Dropped}

    def add(self, original: OriginalRecord) -> None:
        partition, offset, record, envelope, size = original
        if self._file.form == "csv" and record and self._embedded.contains_record(record):
            record = None
        content = self.reader.content(record)
        found = None if isinstance(content, Dropped) else self.reader.read(content, envelope)
        if isinstance(content, Dropped) and size <= self._limit:
            self._drops[content].append(len(self._is_usable))
        if self._has_offsets:
            self._partitions.append(partition)
            self._offsets.append(offset)
            self._timestamps.append(int(str(envelope.get("timestamp", UNKNOWN_TIMESTAMP))))
        self._values.extend(self._zeros if found is None else found.values)
        self._unchanged.append("" if found is None else found.unchanged)
        fewest, most = (0, 0) if found is None else self._sizes.of(original, found)
        self._is_above_limit += bytes((fewest > self._limit, most > self._limit))
        self._is_usable.append(found is not None)
        if found is not None and found.subject is not None:
            self._subjects.add([found.subject])

    def add_columns(self, part: FieldColumns) -> None:
        """Add plain records, all at once if that is possible."""
        most = self._sizes.of_lines(part.lines)
        found = self.reader.read_columns(part.cells, lambda own: max(self._sizes.of_columns(own), most) <= self._limit)
        if found is None:
            self._add_each(part)
            return
        count = len(part.lines)
        self._values.frombytes(np.ascontiguousarray(found.values).tobytes())
        is_usable = found.is_usable
        texts = found.unchanged if is_usable.all() else map(str.__mul__, found.unchanged, is_usable.tolist())
        self._unchanged.extend(texts)
        self._is_above_limit += bytes(2 * count)
        self._is_usable += is_usable.tobytes()
        if found.subjects is not None:
            self._subjects.add(found.subjects)

    def _add_each(self, part: FieldColumns) -> None:
        if self._file.form != "csv":
            for line in part.lines:
                self.add(line_record(line.encode()))
            return
        for cells in zip(*part.cells.values(), strict=True):
            self.add(OriginalRecord(0, 0, dict(zip(part.cells, cells, strict=True)), {}))

    def originals(self) -> Originals:
        policy, has_offsets = self._policy, self._has_offsets
        codes, merged = _subject_codes(policy, np.frombuffer(self._is_usable, np.bool_), self._subjects)
        count = len(codes)
        return Originals(
            values=np.frombuffer(self._values, dtype=np.float64).reshape(count, len(self._zeros)),
            subjects=codes,
            unchanged=self._unchanged,
            partitions=np.frombuffer(self._partitions, np.int64)
            if has_offsets
            else np.broadcast_to(np.int64(0), count),
            offsets=np.frombuffer(self._offsets, np.int64) if has_offsets else np.arange(count),
            is_export=has_offsets,
            timestamps=np.frombuffer(self._timestamps, dtype=np.int64),
            is_above_limit=np.frombuffer(self._is_above_limit, np.bool_).reshape(-1, 2),
            file=self._file,
            merged=merged,
            may_be_followed=not has_offsets and policy.stream is not None and not policy.stream.is_ordered,
            drops=self._drops,
            released=self._released,
            tallies=self.reader.tallies,
        )


class _Subjects:
    """The subjects of usable records: 8 bytes each while all are whole numbers, and texts from the first other one."""

    def __init__(self, policy: Policy) -> None:
        self._numbers = array("q")
        has_numbers = policy.subject is not None and policy.subject.type not in {"string", "boolean"}
        self.texts = None if has_numbers else Texts()

    def add(self, subjects: Int64Vector | Sequence[str]) -> None:
        """Add the next subjects, as texts or as whole numbers."""
        if self.texts is None and not isinstance(subjects, np.ndarray):
            numbers = [whole_subject(text) for text in subjects]
            if None in numbers:
                self.texts, self._numbers = Texts(map(subject_of_number, self._numbers)), array("q")
            else:
                subjects = np.array(numbers, np.int64)
        if isinstance(subjects, np.ndarray):
            if self.texts is None:
                self._numbers.frombytes(subjects.tobytes())
                return
            subjects = list(map(subject_of_number, subjects.tolist()))
        if self.texts is not None:
            self.texts.extend(subjects)

    def codes(self) -> Int64Vector:
        """Return codes, equal for equal subjects."""
        if self.texts is not None:
            return text_codes(len(self.texts), self.texts.__getitem__)
        return np.unique(np.frombuffer(self._numbers, np.int64), return_inverse=True)[1]


def _countable(originals: Originals, path: Path) -> Originals:
    """Refuse messages with one partition and offset, and more records than 32 bits count."""
    repeated = originals.first_repeated() if originals.is_export else None
    if repeated is not None:
        raise InputError(f"{path}, line {repeated + 1}: this partition and offset are repeated; export again")
    if len(originals) > MOST_RECORDS:
        raise InputError(f"{path}: more than {MOST_RECORDS} records; verify them in parts (--partial)")
    return originals


class EmbeddedRecordFinder:
    """Finds CSV records in which a cell contains what would be a record by itself."""

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


def _bytes_around(path: tuple[str, ...], before: tuple[str, ...], after: tuple[str, ...]) -> int:
    """Return the bytes of a JSON field without its value: names, and braces of the objects that it opens and closes."""
    opened, closed = path[_common(path, before) : -1], len(path) - 1 - _common(path, after)
    names = sum(len(json_text(name).encode()) + 1 for name in (*opened, path[-1]))
    return names + len(opened) + closed


def _common(path: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Return how many objects contain both fields."""
    pairs = zip(path[:-1], other[:-1], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _export_names(policy: Policy, file: InputFile, *, is_export: bool | None, by_line: bool) -> frozenset[str] | None:
    """Return the names that every line of an export must have; None for plain records."""
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


def _record_reader(
    policy: Policy, file: InputFile, released: Form, published: Sequence[PublishedValues]
) -> RecordReader:
    categories = {one.attribute.name: one.categories for one in published if isinstance(one, PublishedCategories)}
    return RecordReader(policy, file.form, released, is_parquet=is_parquet(file.path), categories=categories)


def _subject_codes(
    policy: Policy, is_usable: npt.NDArray[np.bool_], subjects: _Subjects
) -> tuple[Int64Vector, Int64Vector | None]:
    """Return the code of each record's subject, and the code of each subject after every step of ``normalize``.

    Without a declared subject every record is one of its own. The second codes are None if subjects are no texts.
    """
    subject, codes = policy.subject, np.where(is_usable, np.arange(len(is_usable)), UNUSABLE)
    if subject is None:
        return codes, None
    codes[is_usable] = own = subjects.codes()
    if subject.type not in {"string", "any"}:
        return codes, None
    if subjects.texts is None:
        return codes, np.arange(int(own.max(initial=-1)) + 1)  # numbers are spelt in one way
    merged = Texts()
    for place in np.unique(own, return_index=True)[1].tolist():
        text = subjects.texts[place]
        merged.append(merged_subject(text, subject.type) or text)
    return codes, text_codes(len(merged), merged.__getitem__)


def _without_limits(attribute: Attribute) -> Attribute:
    return replace(attribute, limits=(-math.inf, math.inf), clip=True, integer=False)
