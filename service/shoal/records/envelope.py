"""What stands around a message's value, read like cells of text: key, headers, timestamp."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from shoal.policy import Attribute, MessagePart, Role
from shoal.records.block import Reason
from shoal.records.columns import MISFIT, numbers, typed

__all__ = ["Columns", "Envelope", "EnvelopeReader"]

Columns: TypeAlias = dict[str, Sequence[Any]]


class Envelope(Protocol):
    """A message without its value."""

    @property
    def key(self) -> bytes | None:
        """Its key."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Its headers, in order; a name may stand twice."""

    @property
    def timestamp(self) -> int:
        """Broker timestamp (ms); negative: it has none."""


@dataclass(slots=True)
class EnvelopeReader:
    """Reads the attributes that a policy takes from the envelope.

    Parameters
    ----------
    attributes : sequence of Attribute
        Each with another source, none of them the value.
    max_bytes : int
        Longest key, and longest header.
    """

    attributes: Sequence[Attribute]
    max_bytes: int

    def read(self, envelopes: Sequence[Envelope]) -> tuple[Columns, dict[int, Reason]]:
        """Read n envelopes.

        Returns
        -------
        columns : dict of str to sequence
            By attribute, a value per envelope: float for quasi-identifiers (NaN: not a number), text for identifiers,
            the type's own for kept fields. A value of a refused envelope means nothing.
        refused : dict of int to Reason
            ``undecodable`` for bytes that are not UTF-8; ``too_large``; ``invalid`` for no key, no header of the
            name or two of them, no timestamp, and what is not of the type.

        Notes
        -----
        Cost: about 0.5 µs per attribute and envelope.
        """
        refused: dict[int, Reason] = {}
        return {a.name: self._column(a, envelopes, refused) for a in self.attributes}, refused

    def _column(self, attribute: Attribute, envelopes: Sequence[Envelope], refused: dict[int, Reason]) -> Sequence[Any]:
        is_quasi = attribute.role is Role.QUASI_IDENTIFIER
        if attribute.source.part is MessagePart.TIMESTAMP:
            times = [envelope.timestamp for envelope in envelopes]
            _refuse(refused, (place for place, time in enumerate(times) if time < 0))
            return np.array(times, dtype=np.float64).tolist() if is_quasi else times
        cells = self._cells(_finder(attribute), envelopes, refused)
        if is_quasi:
            return list(numbers(cells))
        if attribute.role is Role.IDENTIFIER:
            return cells
        values, fits = typed(cells, attribute.type)
        if not fits:
            _refuse(refused, (place for place, value in enumerate(values) if value is MISFIT))
        return values

    def _cells(
        self, find: Callable[[Envelope], bytes | None], envelopes: Sequence[Envelope], refused: dict[int, Reason]
    ) -> list[str]:
        cells: list[str] = []
        for place, text in enumerate(map(find, envelopes)):
            cell, reason = self._cell(text)
            cells.append(cell)
            if reason is not None:
                refused.setdefault(place, reason)
        return cells

    def _cell(self, text: bytes | None) -> tuple[str, Reason | None]:
        if text is None:
            return "", Reason.INVALID
        if len(text) > self.max_bytes:
            return "", Reason.TOO_LARGE
        try:
            return text.decode(), None
        except UnicodeDecodeError:
            return "", Reason.UNDECODABLE


def _refuse(refused: dict[int, Reason], places: Iterable[int]) -> None:
    for place in places:
        refused.setdefault(place, Reason.INVALID)


def _finder(attribute: Attribute) -> Callable[[Envelope], bytes | None]:
    if attribute.source.part is MessagePart.KEY:
        return lambda envelope: envelope.key
    name = attribute.source.header

    def only(envelope: Envelope) -> bytes | None:
        found = [text for header, text in envelope.headers if header == name]
        # Of two, nobody knows which one is meant.
        return found[0] if len(found) == 1 else None

    return only
