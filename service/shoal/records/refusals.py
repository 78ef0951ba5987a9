"""How many records were refused, by reason and field (`RefusalCounter`). It holds no value of a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shoal.records.faults import LONG_JSON, OTHER_WIDTH, RecordFault

__all__ = ["NOT_REPRESENTATIVE", "RefusalCounter", "is_notable", "is_representative"]

NOTABLE_SHARE = 0.01
"""A larger share of refused records is reported by reason and field."""

SUPPRESSED_SHARE = 0.1
"""With a larger share of suppressed records, a release under l, t or max_value_share is not representative."""

NOT_REPRESENTATIVE = "the release is not representative of the input: suppressed records mostly have frequent values"

MAX_KINDS = 10
"""Kinds that `RefusalCounter.texts` lists."""

_ABSENT = (
    "fill the values in, remove the records, or give the field another role: confidential and other publish it as it "
    "is, identifier leaves it out; missing: group releases records without a value"
)
_TYPE = "declare the type that the values have, or type: any"
_REMEDIES = {
    "empty": _ABSENT,
    "null": _ABSENT,
    "a value of missing_values": _ABSENT,
    "not in its order": "add the category to order, or correct the values",
    "not in the taxonomy": "add the category to the taxonomy, or set unknown: root",
    "not a text, truth value or whole number": "write categories as texts, or set scale: numeric",
    "not a time in ISO 8601": "write times as 2026-07-14 or 2026-07-14T09:30:00Z, or set unit",
    "not a number of seconds since 1970": "correct the values or the unit; leave unit out for times in ISO 8601",
    "not a number of milliseconds since 1970": "correct the values or the unit; leave unit out for times in ISO 8601",
    "not a number of microseconds since 1970": "correct the values or the unit; leave unit out for times in ISO 8601",
    "not a number of days since 1970": "correct the values or the unit; leave unit out for times in ISO 8601",
    "missing": "correct the name of the field in the policy, or add the field to the records",
    "not a finite number": (
        "a quasi-identifier must be a number; if the field is a category or a time, set its scale: nominal, ordinal or "
        "time; if it is another text, give it another role: confidential and other publish it as it is, identifier "
        "leaves it out; if it is a number, correct the values, or set "
        "csv.decimal"
    ),
    "not a whole number": "set integer: false, or correct the values",
    "outside its bounds": "widen the bounds, or set out_of_bounds: clip",
    "a list or an object": "give the field the role identifier, which leaves it out, or make the values flat",
    "not a valid subject": (
        "each record needs an identifier of its person, which is no value of missing_values; correct the values or the "
        "type of the field"
    ),
    "not of type json": (
        "a value must be JSON (RFC 8259) with each name once in an object and no number beyond float64; correct the "
        "values"
    ),
    LONG_JSON: "raise max_bytes of the attribute, or shorten the values",
    OTHER_WIDTH: "correct csv.delimiter and csv.quote in the policy, or the lines of the file",
}
"""What to do about a fault, by its reason. Other reasons say it themselves."""


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
        remedy = _REMEDIES.get(first, _TYPE if first.startswith("not of type ") else first)
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

    An empty release has no values.
    """
    return released == 0 or suppressed <= SUPPRESSED_SHARE * records_in
