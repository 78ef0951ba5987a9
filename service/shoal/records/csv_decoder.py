"""`CsvDecoder`: decode the cells of CSV records, and reject repeated headers and cells that contain another record."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from itertools import compress
from typing import TypeAlias

import numpy as np

from shoal.policy import Attribute, FieldType, Policy
from shoal.records.block import Block, Reason
from shoal.records.block_builder import BlockBuilder, Column, ParsedRecords, reject_unless, to_mask
from shoal.records.columns import MISMATCH, parse_values, replace_decimal_commas
from shoal.records.encoder import CsvEncoder, RecordEncoder
from shoal.records.json_decoder import DEFAULT_MAX_BYTES
from shoal.records.numerals import canonical_number
from shoal.records.scales import scale_reader, stack_columns

__all__ = ["CsvCells", "CsvDecoder", "EmbeddedRecordCheck", "RepeatedHeaderCheck"]

CsvCells: TypeAlias = list[str] | None
"""The cells of one record as in the file; None if they could not be separated."""

_LINE_END = re.compile(r"\r\n|\r|\n")
_BYTE_ORDER_MARK = "\ufeff"


class CsvDecoder:
    """Decodes the cells that a `CsvReader` yields.

    Parameters
    ----------
    policy : Policy
    columns : sequence of str, optional
        Names in the header of the file, including all declared ones; by default the attributes of the policy.
    hash_key : bytes, optional
        Key of the subject hash, up to 64 bytes; by default one random key per process.
    max_bytes : int
        Maximum length of the encoded unchanged fields of a record.
    encoder : RecordEncoder, optional
        JsonEncoder of the output; by default `CsvEncoder`.
    with_columns : bool
        Whether blocks also contain the unchanged fields as typed columns.
    """

    def __init__(
        self,
        policy: Policy,
        columns: Sequence[str] | None = None,
        *,
        hash_key: bytes | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
        encoder: RecordEncoder | None = None,
        with_columns: bool = False,
    ) -> None:
        names = [attribute.name for attribute in policy.attributes] if columns is None else list(columns)
        encoder = CsvEncoder(policy) if encoder is None else encoder
        self._builder = BlockBuilder(policy, encoder, hash_key, max_bytes, with_columns=with_columns)
        self._width = len(names)
        self._repeated_headers = RepeatedHeaderCheck(policy, names)
        self._embedded_records = EmbeddedRecordCheck(policy, names)
        self._has_commas = policy.csv.decimal == ","
        self._clustered = [
            (names.index(attribute.name), scale_reader(attribute, policy, has_commas=self._has_commas))
            for attribute in policy.clustered
        ]
        self._unchanged_fields: list[tuple[int, Attribute]] = [
            (names.index(a.name), a) for a in policy.unchanged_fields
        ]
        self._subject = None if policy.subject is None else names.index(policy.subject.name)
        # A subject of type string is a text even if it looks like a number.
        self._has_subject_commas = self._has_commas and policy.subject is not None and policy.subject.type != "string"

    def decode(self, messages: Sequence[CsvCells]) -> Block:
        """Decode the cells of records.

        Parameters
        ----------
        messages : sequence of list of str, or None
            As `CsvReader` yields them.

        Returns
        -------
        Block
            The accepted records, and index and reason of each rejected one. ``undecodable``: None. ``too_large``: the
            unchanged fields are longer than ``max_bytes``, or a category than its limit. ``invalid``: the
            record does not fit the policy, it equals the header, or a cell contains another record.

        Notes
        -----
        The content of cells raises no error. Cost: about 0.1 µs per cell.
        """
        rejected: list[tuple[int, Reason]] = []
        index, records = [], []
        for i, cells in enumerate(messages):
            if cells is None:
                rejected.append((i, Reason.UNDECODABLE))
            elif len(cells) != self._width:
                rejected.append((i, Reason.INVALID))
            else:
                index.append(i)
                records.append(cells)
        columns: Sequence[Column] = list(zip(*records, strict=True)) if records else [()] * self._width
        no_records = {*self._repeated_headers.find(columns), *self._embedded_records.find(columns)}
        if no_records:
            rejected += [(index[i], Reason.INVALID) for i in no_records]
            is_accepted = [i not in no_records for i in range(len(index))]
            index = list(compress(index, is_accepted))
            columns = [tuple(compress(column, is_accepted)) for column in columns]
        return self._builder.build(self._candidates(index, columns, rejected), rejected)

    def _candidates(
        self, index: list[int], columns: Sequence[Column], rejected: list[tuple[int, Reason]]
    ) -> ParsedRecords:
        n = len(index)
        values, categories = stack_columns(
            [reader.read_cells(columns[column]) for column, reader in self._clustered], n
        )
        parsed = [self._parse_values(columns[column], attribute.type) for column, attribute in self._unchanged_fields]
        candidates = ParsedRecords(
            index=np.array(index, dtype=np.int64),
            values=values,
            subjects=None if self._subject is None else self._subjects(columns[self._subject]),
            unchanged_columns=[column for column, _ in parsed],
            categories=categories,
        )
        with_mismatch = [column for column, all_match in parsed if not all_match]
        if with_mismatch:
            matches = to_mask((MISMATCH not in fields for fields in zip(*with_mismatch, strict=True)), n)
            candidates = reject_unless(matches, candidates, Reason.INVALID, rejected)
        return candidates

    def _parse_values(self, cells: Column, kind: FieldType) -> tuple[Column, bool]:
        is_number = kind in {"integer", "number"}
        return parse_values(replace_decimal_commas(cells) if self._has_commas and is_number else cells, kind)

    def _subjects(self, cells: Column) -> Column:
        """Replace the decimal commas of numbers, so that a person is the same subject in every dialect."""
        if not self._has_subject_commas:
            return cells
        texts = [cell.replace(",", ".") for cell in cells]
        return [text if canonical_number(text.strip()) else cell for text, cell in zip(texts, cells, strict=True)]


class RepeatedHeaderCheck:
    """Finds records that equal the header, as in a file that was appended to or joined from several files.

    Such a record has valid values wherever the policy accepts any text. Released, it would count as a person.

    Parameters
    ----------
    policy : Policy
    columns : sequence of str
        Names in the header of the file.
    """

    def __init__(self, policy: Policy, columns: Sequence[str]) -> None:
        self._quote = policy.csv.quote
        self._names = [name.strip(" \t") for name in columns]
        # Few values contain the longest name.
        self._longest = max(range(len(columns)), key=lambda column: len(self._names[column]))
        self._around = f" \t{_BYTE_ORDER_MARK}{self._quote}"

    def find(self, columns: Sequence[Sequence[str]]) -> list[int]:
        """Return the indexes of the records that equal the header, but for blanks and tabs around the cells.

        A byte order mark before the first cell is ignored: each of the joined files can begin with one.

        Parameters
        ----------
        columns : sequence of sequences of str
            The cells of n records, by column.

        Notes
        -----
        Cost: about 10 ns per record, and 100 ns if a cell contains the longest name.
        """
        name, cells = self._names[self._longest].strip(self._around), columns[self._longest]
        if name not in "".join(cells):
            return []
        candidates = [i for i, cell in enumerate(cells) if cell.strip(self._around) == name]
        return [i for i in candidates if self._is_header([column[i] for column in columns])]

    def _is_header(self, cells: list[str]) -> bool:
        if cells[0].startswith(_BYTE_ORDER_MARK):
            # After the mark the reader takes quotation marks for characters.
            first = cells[0].removeprefix(_BYTE_ORDER_MARK).strip(" \t")
            cells = [first.removeprefix(self._quote).removesuffix(self._quote), *cells[1:]]
        return [cell.strip(" \t") for cell in cells] == self._names


class EmbeddedRecordCheck:
    """Finds records with a cell that contains another record.

    A stray quotation mark can make the reader take the following lines into one cell. The records of these lines
    belong to other people, and their identifiers would be published inside an unchanged field.

    Parameters
    ----------
    policy : Policy
        ``csv.multiline: true`` switches the check off.
    columns : sequence of str
        Names in the header of the file.
    """

    def __init__(self, policy: Policy, columns: Sequence[str]) -> None:
        self._is_off = policy.csv.multiline
        self._delimiter, self._quote = policy.csv.delimiter, policy.csv.quote
        self._reader_options = policy.csv.reader_options | {"strict": False}
        self._width = len(columns)
        has_commas = policy.csv.decimal == ","
        self._clustered = [
            (columns.index(attribute.name), scale_reader(attribute, policy, has_commas=has_commas))
            for attribute in policy.clustered
        ]

    def find(self, columns: Sequence[Sequence[str]]) -> list[int]:
        """Return the indexes of the records with an embedded record.

        Parameters
        ----------
        columns : sequence of sequences of str
            The cells of n records, by column.

        Notes
        -----
        Cost: about 10 ns per cell, and 10 µs per line of a cell with line ends.
        """
        if self._is_off:
            return []
        with_line_ends: set[int] = set()
        for column in columns:
            text = "".join(column)
            if "\n" in text or "\r" in text:
                with_line_ends.update(i for i, cell in enumerate(column) if "\n" in cell or "\r" in cell)
        return [i for i in sorted(with_line_ends) if self._has_embedded_record([column[i] for column in columns])]

    def _has_embedded_record(self, cells: Sequence[str]) -> bool:
        for number, cell in enumerate(cells):
            lines = _LINE_END.split(cell)
            if len(lines) == 1:
                continue
            if any(map(self._is_record, lines)):
                return True
            # Each of two records contains a stray quote, so one cell holds the end of one and the start of the next.
            first, last = self._split(lines[0]), self._split(lines[-1])
            if self._fits([*cells[:number], *first]) and self._fits([*last, *cells[number + 1 :]]):
                return True
        return False

    def _is_record(self, line: str) -> bool:
        return self._fits(self._split(line)) or self._fits(next(csv.reader([line], **self._reader_options), []))

    def _split(self, line: str) -> list[str]:
        return [cell.strip(" \t").strip(self._quote) for cell in line.split(self._delimiter)]

    def _fits(self, cells: Sequence[str]) -> bool:
        """Return whether the cells have the width of a record, and values of the quasi-identifiers."""
        return len(cells) == self._width and all(
            reader.are_valid(reader.read_cells([cells[column]]).values).all() for column, reader in self._clustered
        )
