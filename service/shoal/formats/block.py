"""`Block`: decoded records as arrays; the columns of all formats, and the steps from them to a block.

The decoders of all formats share this module, so that equal content gives equal blocks. A column is parsed at once if
all its cells are plain. The ``describe`` functions say what is wrong with a value.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Vector
from shoal.formats.confidential_keys import ProtectedReader, ProtectedValues
from shoal.formats.encoder import RecordEncoder
from shoal.formats.faults import DropReason, FaultReason, Reason
from shoal.formats.json_text import canonical_json
from shoal.formats.subjects import normaliser
from shoal.policy import BLANKS, MAX_CATEGORY_BYTES, Attribute, FieldType, Policy
from shoal.scales import scale_of
from shoal.scales.numeric import parse_at_once, parse_number, to_number
from shoal.scales.scale import FIRST_INEXACT, ScaleColumn, ScaleReader, integral_to_int

_EncodedCategories: TypeAlias = Sequence[tuple[int, list[bytes]]]
"""Column of a nominal quasi-identifier, and its categories as they are published."""

Column: TypeAlias = Sequence[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The n accepted records of a sequence of messages, and the messages that are rejected or dropped.

    Every message is in ``index``, in ``rejected`` or in ``dropped``, each by increasing index.
    """

    values: Float64Matrix
    """Shape (n, d), C-contiguous; a column per attribute of `Policy.clustered`.

    A number is in original units; a time is in ms since 1970-01-01T00:00Z; an ordinal value is its rank, from 0; a
    nominal value is its index in ``categories``. A missing value of an attribute that may have one is NaN. All others
    are finite, none is a negative zero, and each is within the bounds of its attribute if it has bounds.
    """
    subjects: Int64Vector
    """Hash of the normalised subject, or a running number if every record belongs to a different person. Only equality
    has a meaning.
    """
    unchanged_fields: list[bytes]
    """The unchanged fields of each record, encoded by the encoder that the decoder was given."""
    index: Int64Vector
    rejected: list[tuple[int, Reason]]
    clipped: int
    """Number of values that were outside their bounds and were moved to them."""
    unchanged_columns: Sequence[Sequence[Any]] = ()
    """A column of n typed values per unchanged field, if the decoder was created with ``with_columns``; else empty."""
    categories: Sequence[Sequence[str]] = ()
    """Per nominal attribute of `Policy.clustered` the categories of this block, each once, as texts of JSON scalars."""
    dropped: Sequence[tuple[int, DropReason]] = ()
    protected: ProtectedValues | None = None
    """The values of `Policy.protected`; None if there are none."""

    def __len__(self) -> int:
        return len(self.unchanged_fields)

    def filter(self, mask: BoolVector) -> Block:
        """Return the records where the mask, of shape (n,), is true. ``rejected`` and ``clipped`` stay the same."""
        selectors = mask.tolist()
        return _select(self, mask, lambda items: list(itertools.compress(items, selectors)))

    def slice(self, records: slice) -> Block:
        """Return consecutive records. ``rejected`` and ``clipped`` stay the same."""
        if records == slice(0, len(self)):
            return self
        return _select(self, records, lambda items: items[records])

    def __repr__(self) -> str:
        """Return counts only, because a block can appear in a traceback."""
        return f"Block(records={len(self)}, rejected={len(self.rejected)}, clipped={self.clipped})"


def _select(block: Block, records: BoolVector | slice, select: Callable[[Any], Any]) -> Block:
    return replace(
        block,
        values=block.values[records],
        subjects=block.subjects[records],
        unchanged_fields=select(block.unchanged_fields),
        index=block.index[records],
        unchanged_columns=list(map(select, block.unchanged_columns)),
        protected=None if block.protected is None else block.protected.select(records),
    )


@dataclass(slots=True, repr=False)
class ParsedRecords:
    """n records whose fields have the declared types, as columns; infinity where a value could not be read.

    ``subjects`` are as read; None if every record belongs to a different person. ``unchanged_columns`` hold str,
    int, float, bool or None. ``protected`` is set by `BlockBuilder`.
    """

    index: Int64Vector
    values: Float64Matrix
    subjects: Column | None
    unchanged_columns: Sequence[Column]
    categories: Sequence[Sequence[str]] = ()
    protected: ProtectedValues | None = None

    def __len__(self) -> int:
        return len(self.index)

    def filter(self, mask: BoolVector) -> ParsedRecords:
        """Return the records where the mask is true."""
        selectors = mask.tolist()
        return replace(
            self,
            index=self.index[mask],
            values=self.values[mask],
            subjects=None if self.subjects is None else list(itertools.compress(self.subjects, selectors)),
            unchanged_columns=[list(itertools.compress(column, selectors)) for column in self.unchanged_columns],
            protected=None if self.protected is None else self.protected.select(mask),
        )


class BlockBuilder:
    """Checks values against the policy, hashes the subjects and encodes the unchanged fields.

    ``max_bytes`` limits the encoded unchanged fields and categories of a record. Blocks contain the unchanged fields as
    typed columns if asked (``with_columns``), or if the distance of the stream includes confidential numbers.
    """

    def __init__(self, policy: Policy, encoder: RecordEncoder, max_bytes: int, *, with_columns: bool) -> None:
        self._with_columns = with_columns or bool(policy.dependence_attributes)
        self._encoder = encoder
        self._max_bytes = max_bytes
        self._protected = ProtectedReader(policy) if policy.protected else None
        self._normalise = None
        if policy.subject is not None:
            self._normalise = normaliser(policy.subject.type, policy.subject.normalize, policy.missing_values)
        self._next_subject = 0
        attributes = policy.clustered
        limits = np.array([a.limits for a in attributes], dtype=np.float64).reshape(-1, 2)
        self._low, self._high = limits.T.copy()
        self._rejects_outside = np.array([not a.clip for a in attributes], dtype=bool)
        self._is_integer = np.array([a.integer for a in attributes], dtype=bool)
        self._may_be_missing = np.array([a.may_be_missing for a in attributes], dtype=bool)
        self._has_missing = bool(self._may_be_missing.any())
        self._json_limits = [
            (number, a.max_bytes) for number, a in enumerate(policy.unchanged_fields) if a.type == "json"
        ]
        self._nominal = [number for number, attribute in enumerate(attributes) if attribute.is_nominal]
        self._published_nominal = [number for number in self._nominal if number < len(policy.quasi_identifiers)]

    def build(self, candidates: ParsedRecords, rejected: list[tuple[int, Reason]]) -> Block:
        """Return the block. Records rejected here are added to ``rejected``, which is then sorted by index."""
        candidates = self._reject_long_json(self._reject_invalid(candidates, rejected), rejected)
        candidates = self._reject_long_categories(candidates, rejected)
        candidates = self._reject_unplaced(candidates, rejected)
        unchanged_fields = self._encoder.encode_unchanged(candidates.unchanged_columns, len(candidates))
        columns = zip(self._published_nominal, candidates.categories, strict=False)
        categories = [(number, [text.encode() for text in texts]) for number, texts in columns]
        for find, reason in ((self._find_short, Reason.TOO_LARGE), (self._find_encodable, Reason.INVALID)):
            mask = find(candidates.values, unchanged_fields, categories)
            if mask is not None:
                candidates = reject_unless(mask, candidates, reason, rejected)
                unchanged_fields = list(itertools.compress(unchanged_fields, mask.tolist()))
        clipped = self._clip(candidates.values)
        rejected.sort(key=lambda entry: entry[0])
        return Block(
            values=candidates.values,
            subjects=self._hash_subjects(candidates),
            unchanged_fields=unchanged_fields,
            index=candidates.index,
            rejected=rejected,
            clipped=clipped,
            unchanged_columns=candidates.unchanged_columns if self._with_columns else (),
            categories=candidates.categories,
            protected=candidates.protected,
        )

    def _reject_invalid(self, candidates: ParsedRecords, rejected: list[tuple[int, Reason]]) -> ParsedRecords:
        """Reject records with an invalid value or without a subject, and normalise the subjects."""
        is_valid = self._find_valid(candidates.values)
        if self._normalise is not None and candidates.subjects is not None:
            candidates.subjects = self._normalise(candidates.subjects)
            if "" in candidates.subjects:
                is_valid &= to_mask(map(bool, candidates.subjects), len(candidates))
        return reject_unless(is_valid, candidates, Reason.INVALID, rejected)

    def _reject_unplaced(self, candidates: ParsedRecords, rejected: list[tuple[int, Reason]]) -> ParsedRecords:
        """Read the protected attributes, and reject records with a value that cannot be compared with its reference."""
        if self._protected is None:
            return candidates
        candidates.protected, is_placed = self._protected.read(candidates.unchanged_columns, len(candidates))
        return reject_unless(is_placed, candidates, Reason.INVALID, rejected)

    def _reject_long_json(self, candidates: ParsedRecords, rejected: list[tuple[int, Reason]]) -> ParsedRecords:
        """Reject records with a field of type json that is longer than its limit."""
        for number, limit in self._json_limits:
            column = candidates.unchanged_columns[number]
            is_short = to_mask((text is None or len(text.encode()) <= limit for text in column), len(column))
            candidates = reject_unless(is_short, candidates, Reason.TOO_LARGE, rejected)
        return candidates

    def _reject_long_categories(self, candidates: ParsedRecords, rejected: list[tuple[int, Reason]]) -> ParsedRecords:
        """Reject records with a category that is longer than the limit, and remove these categories."""
        for position, (column, texts) in enumerate(zip(self._nominal, candidates.categories, strict=False)):
            is_short = to_mask((len(text.encode()) <= MAX_CATEGORY_BYTES for text in texts), len(texts))
            if is_short.all():
                continue
            kept = _per_record(is_short, candidates.values[:, column], missing=1).astype(np.bool_)
            candidates = reject_unless(kept, candidates, Reason.TOO_LARGE, rejected)
            # The numbers of the other categories are those without the long ones.
            is_present = ~np.isnan(candidates.values[:, column])
            numbers = candidates.values[is_present, column].astype(np.intp)
            candidates.values[is_present, column] = (np.cumsum(is_short) - 1)[numbers]
            categories = list(candidates.categories)
            categories[position] = list(itertools.compress(texts, is_short.tolist()))
            candidates.categories = categories
        return candidates

    def _find_valid(self, values: Float64Matrix) -> BoolVector:
        """Return which records are finite or may be missing, integers where required, and within bounds that reject."""
        is_readable = np.isfinite(values)
        if self._has_missing:
            is_readable |= np.isnan(values) & self._may_be_missing
        is_valid = np.asarray(is_readable.all(axis=1))
        if self._is_integer.any():
            integers = values[:, self._is_integer]
            is_valid &= ((integers == np.rint(integers)) | np.isnan(integers)).all(axis=1)
        if self._rejects_outside.any():
            is_outside = (values < self._low) | (values > self._high)
            is_valid &= ~(is_outside & self._rejects_outside).any(axis=1)
        return is_valid

    def _find_short(
        self, values: Float64Matrix, unchanged_fields: Sequence[bytes], categories: _EncodedCategories
    ) -> BoolVector | None:
        """Return which records are not too large, or None if none is."""
        lengths = [(number, list(map(len, texts))) for number, texts in categories]
        longest = max(map(len, unchanged_fields), default=0)
        if longest + sum(max(column, default=0) for _, column in lengths) <= self._max_bytes:
            return None
        total = np.fromiter(map(len, unchanged_fields), np.int64, len(unchanged_fields))
        for number, column in lengths:
            total += _per_record(column, values[:, number], missing=0)
        return np.asarray(total <= self._max_bytes)

    def _find_encodable(
        self, values: Float64Matrix, unchanged_fields: Sequence[bytes], categories: _EncodedCategories
    ) -> BoolVector | None:
        """Return which records the output encoding can represent, or None if it can represent all."""
        fields_mask = self._encoder.encodable_mask(unchanged_fields)
        is_encodable = None if fields_mask is None else to_mask(fields_mask, len(unchanged_fields))
        for number, texts in categories:
            mask = self._encoder.encodable_mask(texts)
            if mask is not None:
                column = _per_record(mask, values[:, number], missing=1).astype(np.bool_)
                is_encodable = column if is_encodable is None else is_encodable & column
        return is_encodable

    def _clip(self, values: Float64Matrix) -> int:
        """Move values to their bounds in place and return how many moved. No zero is negative afterwards."""
        clipped = int(np.count_nonzero((values < self._low) | (values > self._high)))
        if clipped:
            np.clip(values, self._low, self._high, out=values)
        values += 0.0
        return clipped

    def _hash_subjects(self, candidates: ParsedRecords) -> Int64Vector:
        """Return a hash per subject: Python's own (SipHash), whose random key is specific to the process."""
        if candidates.subjects is not None:
            # A collision makes two people count as one: clusters become larger, and k-anonymity holds.
            return np.fromiter(map(hash, candidates.subjects), np.int64, len(candidates))
        first = self._next_subject
        self._next_subject += len(candidates)
        return np.arange(first, self._next_subject, dtype=np.int64)


def to_mask(answers: Iterable[bool], n: int) -> BoolVector:
    """Convert n truth values to an array."""
    return np.fromiter(answers, np.bool_, n)


def reject_unless(
    mask: BoolVector, candidates: ParsedRecords, reason: Reason, rejected: list[tuple[int, Reason]]
) -> ParsedRecords:
    """Return the candidates where the mask is true, and add the others to ``rejected``."""
    if mask.all():
        return candidates
    rejected += [(index, reason) for index in candidates.index[~mask].tolist()]
    return candidates.filter(mask)


def _per_record(of_category: Iterable[int], indexes: Float64Vector, *, missing: int) -> Int64Vector:
    """Return the number of each record's category; ``missing`` for a record without one."""
    numbers = np.array([*of_category, missing], dtype=np.int64)
    taken: Int64Vector = numbers[np.where(np.isnan(indexes), len(numbers) - 1, indexes).astype(np.intp)]
    return taken


MISMATCH = object()
"""Takes the place of a cell that does not have the declared type."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_INTEGER_DIGITS = 4300
"""The limit of the JSON parser, applied to CSV too."""
_BOOLEANS = {"true": True, "false": False, "": None}


def stack_columns(columns: Sequence[ScaleColumn], n: int) -> tuple[Float64Matrix, list[Sequence[str]]]:
    """Return the columns of n records as a matrix, and the categories of the nominal ones."""
    values = np.empty((n, len(columns)), dtype=np.float64)
    for number, column in enumerate(columns):
        values[:, number] = column.values
    return values, [column.categories for column in columns if column.categories is not None]


def parse_values(cells: Sequence[str], kind: FieldType) -> tuple[Sequence[Any], bool]:
    """Parse cells of a type, None for an empty one of most types; return also whether none is `MISMATCH`."""
    if kind in {"string", "any"}:
        return cells, True
    values = None if kind in {"boolean", "json"} else parse_at_once(cells, int if kind == "integer" else float)
    if values is not None and (kind == "integer" or max(map(abs, values), default=0.0) < FIRST_INEXACT):
        return values, True
    parse = _CELL_PARSERS[kind]
    values = [parse(cell.strip(BLANKS)) for cell in cells]
    return values, not any(value is MISMATCH for value in values)


_TYPED = ("integer", "number", "boolean")


def missing_of(attribute: Attribute, missing_values: Collection[str]) -> frozenset[str]:
    """Return the texts that mean null in an unchanged field: of a type without texts, if the policy names any."""
    texts = frozenset(missing_values)
    return texts if attribute.type in _TYPED and texts - {""} else frozenset()


def blank_missing(cells: Sequence[str], attribute: Attribute, missing_values: Collection[str]) -> Sequence[str]:
    """Return the cells of an unchanged field, empty where their text means null."""
    missing = missing_of(attribute, missing_values)
    return ["" if cell.strip(BLANKS) in missing else cell for cell in cells] if missing else cells


def to_exact_number(value: object) -> float | None:
    """Convert one value like `to_number`, but return an integer of 2^53 or more exactly, as an int."""
    number = to_number(value)
    if number is None or not abs(number) >= FIRST_INEXACT:
        return number
    if isinstance(value, str):
        text = value.strip(BLANKS)
        is_integer = _INTEGER.fullmatch(text) and len(text) <= _MAX_INTEGER_DIGITS
        return int(text) if is_integer else integral_to_int(number)
    return value if isinstance(value, int) else integral_to_int(number)


def describe_missing(attribute: Attribute, reason: str) -> str:
    """Return why a missing value is refused; empty if it may be missing."""
    return "" if attribute.may_be_missing else reason


def describe_converted(reader: ScaleReader, value: float, cell: str) -> str:
    """Return what is wrong with a value that is not missing by its text, but may be missing as a number."""
    if reader.has_missing_numbers and np.isnan(value):
        return describe_missing(reader.attribute, FaultReason.MISSING_VALUE)
    return describe_clustered(reader.attribute, value, cell)


def describe_json(attribute: Attribute, text: bytes) -> str:
    """Return what is wrong with the text of a value of type json; empty if it is valid."""
    canonical = json_or_mismatch(text)
    if canonical is MISMATCH:
        return FaultReason.NOT_JSON_FIELD
    return FaultReason.LONG_JSON if len(str(canonical or "").encode()) > attribute.max_bytes else ""


def _number_or_mismatch(text: str) -> object:
    if not text:
        return None
    if _INTEGER.fullmatch(text) and len(text) <= _MAX_INTEGER_DIGITS:
        return int(text)
    value = parse_number(text)
    return value if math.isfinite(value) else MISMATCH


def _integer_or_mismatch(text: str) -> object:
    value = _number_or_mismatch(text)
    return value if not isinstance(value, float) or value.is_integer() else MISMATCH


def json_or_mismatch(text: bytes) -> object:
    """Return the `canonical_json` of a text, or `MISMATCH` if it is not JSON."""
    try:
        return canonical_json(text)
    except ValueError:
        return MISMATCH


_CELL_PARSERS: dict[FieldType, Callable[[str], object]] = {
    "integer": _integer_or_mismatch,
    "number": _number_or_mismatch,
    "boolean": lambda text: _BOOLEANS.get(text.lower(), MISMATCH),
    "json": lambda text: json_or_mismatch(text.encode()) if text else None,
}


def describe_clustered(attribute: Attribute, value: float, written: object) -> str:
    """Return what is wrong with a value that is not missing, as `ScaleReader` converted it; empty if it is valid.

    ``written`` is the value in the input, whose form can tell the cause.
    """
    scale = scale_of(attribute)
    fault = scale.explain(value) if np.isfinite(value) else scale.cause(written)
    return "" if fault is None else fault.reason
