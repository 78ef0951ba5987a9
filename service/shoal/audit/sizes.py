"""Bounds of the bytes that are compared with ``kafka.max_record_bytes``.

Three lengths are limited: that of a message, that of each key and header that the policy reads, and that of the
unchanged fields as they are published. The judge knows the first two exactly where the original holds them as text.
The unchanged fields have exact lengths, except numbers, which may be spelled in several ways, and cells of a CSV file,
which may be quoted. A record is too large for certain if the smallest of these lengths exceeds the limit, and cannot be
too large if the largest one does not.
"""

from __future__ import annotations

import json

from shoal.audit.fields import FIELD_SEPARATOR, json_text
from shoal.audit.parsing import Form, Record
from shoal.policy import MessagePart, Policy

__all__ = ["SizeBounds"]

LONGEST_FLOAT = 330
"""Characters of a float64 without an exponent are fewer."""


class SizeBounds:
    """Computes the fewest and the most bytes that are compared with the limit, of one record after the other.

    Parameters
    ----------
    policy : Policy
    released : {"csv", "jsonl"}
        Form of the release.
    is_measured : bool
        Whether each record of the original has a length of its own that is limited. Cells of a CSV file have none.
    """

    def __init__(self, policy: Policy, released: Form, *, is_measured: bool) -> None:
        self._is_measured = is_measured
        self._parts = [
            str(attribute.source)
            for attribute in policy.envelope_attributes
            if attribute.source.part is not MessagePart.TIMESTAMP
        ]
        self._is_csv, self._dialect = released == "csv", policy.csv_output
        # A field of JSON has a name and a colon.
        self._overhead = [
            0 if self._is_csv else len(json_text(attribute.name).encode()) + 1 for attribute in policy.unchanged_fields
        ]

    def of(self, record: Record | None, envelope: Record, size: int, unchanged: str) -> tuple[int, int]:
        """Return the bounds for a usable record.

        Parameters
        ----------
        record, envelope : mapping
            As read from the original.
        size : int
            Bytes of the record; 0 if they are not known, as those of Parquet, or if the record was read as cells.
        unchanged : str
            Texts of the unchanged fields, separated by `FIELD_SEPARATOR`.
        """
        parts = max((len(str(envelope[part]).encode()) for part in self._parts if part in envelope), default=0)
        fewest, most = self._unchanged(unchanged)
        fewest, most = max(size, parts, fewest), max(size, parts, most)
        if self._is_measured and not size:
            cells = sum(len(name) + len(str(value)) for name, value in (record or {}).items())
            most = max(most, 2 * cells)
        return fewest, most

    def _unchanged(self, unchanged: str) -> tuple[int, int]:
        if not self._overhead:
            return 0, 0
        texts = unchanged.split(FIELD_SEPARATOR)
        bounds = [self._field(text) for text in texts]
        named = sum(self._overhead)
        # One byte between two fields, or the delimiter of the dialect.
        between = len(texts) - 1
        longest = between * (len(self._dialect.delimiter.encode()) if self._is_csv else 1)
        return sum(low for low, _ in bounds) + named + between, sum(high for _, high in bounds) + named + longest

    def _field(self, text: str) -> tuple[int, int]:
        """Return the bounds of one unchanged field, from its text in JSON."""
        if text.startswith('"') and self._is_csv:
            cell: str = json.loads(text)
            length = len(cell.encode())
            return length, length + 2 + cell.count(self._dialect.quote) + cell.count("\\")
        if text.startswith('"'):
            return (len(text.encode()),) * 2
        if text in {"null", "true", "false"}:
            return (0 if self._is_csv else len(text)), len(text)
        return 1, max(len(text), LONGEST_FLOAT)
