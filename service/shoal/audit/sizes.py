"""Bounds of the bytes that are compared with ``kafka.max_record_bytes``.

Three lengths are limited: the length of a message, the length of each key and header that the policy reads, and the
length of the categories of a record and its unchanged fields as they are published. Separators between these fields and
the quasi-identifiers do not count. A category has a limit of its own, which `shoal.audit.fields` checks.

The original shows these lengths exactly, with two exceptions: messages that an export contains as JSON objects, and
rows of Parquet. Their lengths are estimated by a smallest and a largest one. A record is certainly too large if the
smallest length exceeds the limit. It is certainly not too large if the largest length does not exceed it.
"""

from __future__ import annotations

import json
from itertools import groupby, takewhile

from shoal.audit.csv_cells import csv_cell
from shoal.audit.fields import FIELD_SEPARATOR, UsableRecord
from shoal.audit.json_values import json_text
from shoal.audit.parsing import Form, OriginalRecord, Record
from shoal.audit.structure import nested_order, output_path
from shoal.policy import MessagePart, Policy, Role

__all__ = ["DEFAULT_MAX_BYTES", "SizeBounds"]

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
