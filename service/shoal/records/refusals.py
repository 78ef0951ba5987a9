"""How many records were refused, by reason and field (`RefusalCounter`). It holds no value of a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shoal.records.fault_reasons import remedy_for
from shoal.records.faults import RecordFault

__all__ = ["NOT_REPRESENTATIVE", "RefusalCounter", "is_notable", "is_representative"]

NOTABLE_SHARE = 0.01
"""A larger share of refused records is reported by reason and field."""

SUPPRESSED_SHARE = 0.1
"""With a larger share of suppressed records, a release under l, t or max_value_share is not representative."""

NOT_REPRESENTATIVE = "the release is not representative of the input: suppressed records mostly have frequent values"

MAX_KINDS = 10
"""Kinds that `RefusalCounter.texts` lists."""


class RefusalCounter:
    """Counts refused records. Its memory is bounded by the number of fields of the policy.

    Attributes
    ----------
    total : int
        Number of refused records.
    """

    def __init__(self) -> None:
        self.total = 0
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, reason: str, faults: Sequence[RecordFault], count: int = 1) -> None:
        """Count refused records that have the same faults.

        Parameters
        ----------
        reason : str
            As in the reference of the record.
        faults : sequence of RecordFault
            Each is counted: a record that lacks two fields counts for both. Empty if they are not known.
        count : int
            Number of these records.
        """
        self.total += count
        for field, text in {(fault.field, fault.reason) for fault in faults} or {("", "")}:
            self._counts[reason, field, text] += count

    def texts(self, records_in: int) -> list[str]:
        """Return a text for each kind, the most frequent first. A record with several faults is in several texts.

        Parameters
        ----------
        records_in : int
            Records that were read.

        Returns
        -------
        list of str
            Such as ``1,350 of 7,874 invalid: creatinine: empty``.
        """
        ordered = self._ordered()
        texts = [f"{count:,} of {records_in:,} {': '.join(filter(None, kind))}" for kind, count in ordered[:MAX_KINDS]]
        rest = len(ordered) - MAX_KINDS
        return texts + ([f"{rest} more kind{'s' if rest > 1 else ''}"] if rest > 0 else [])

    def remedy(self) -> str:
        """Return what to do about the most frequent fault, with all its fields; an empty text if that is not known."""
        kinds = [(field, text) for (_, field, text), _ in self._ordered()]
        if not kinds:
            return ""
        first = kinds[0][1]
        remedy = remedy_for(first)
        fields = ", ".join(dict.fromkeys(field for field, text in kinds[:MAX_KINDS] if field and text == first))
        return f"{fields}: {remedy}" if fields else remedy

    def _ordered(self) -> list[tuple[tuple[str, str, str], int]]:
        """Return the kinds with their counts, the most frequent first, and kinds with equal counts by their texts."""
        return sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))


def is_notable(records_in: int, released: int, refused: int) -> bool:
    """Return whether nothing was released of an input that has records, or more than 1 % of them were refused."""
    return (records_in > 0 and released == 0) or refused > NOTABLE_SHARE * records_in


def is_representative(records_in: int, released: int, suppressed: int) -> bool:
    """Return whether so few records are suppressed that the values of the others are like those of the input.

    An empty release has no values. After a restart, records may be decided that an earlier process has counted as read.
    """
    return released == 0 or suppressed <= SUPPRESSED_SHARE * max(records_in, released + suppressed)
