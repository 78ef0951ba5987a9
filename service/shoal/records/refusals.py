"""How many records were refused, by reason and field (`RefusalCounter`). It holds no value of a record."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

__all__ = ["RefusalCounter", "is_notable"]

NOTABLE_SHARE = 0.01
"""A larger share of refused records is reported by reason and field."""

MAX_DESCRIBED = 20_000
"""Records that are examined for the field at fault. One takes about 20 µs, so that a bad file is not read slowly."""

MAX_KINDS = 10
"""Kinds that `RefusalCounter.texts` lists."""

_LOCATION = re.compile(r", (?:column \d+ \((.*)\)|field (.*)): (.*)", re.DOTALL)


class RefusalCounter:
    """Counts refused records.

    Attributes
    ----------
    total : int
        Number of refused records.
    """

    def __init__(self) -> None:
        self.total = 0
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, reason: str, describe: Callable[[], str]) -> None:
        """Count a refused record.

        Parameters
        ----------
        reason : str
            As in its reference.
        describe : callable
            Returns field and fault, as `describe_csv_fault` and `describe_json_fault` do. Called for the first records
            only.
        """
        self._counts[reason, _plain(describe()) if self.total < MAX_DESCRIBED else ""] += 1
        self.total += 1

    def texts(self, records_in: int) -> list[str]:
        """Return a text for each kind, the most frequent first.

        Parameters
        ----------
        records_in : int
            Records that were read.

        Returns
        -------
        list of str
            Such as ``1,350 of 7,874 invalid: creatinine: empty``.
        """
        found = self._counts.most_common()
        kinds = [(count, f"{reason}{fault and f': {fault}'}") for (reason, fault), count in found[:MAX_KINDS]]
        rest = sum(count for _, count in found[MAX_KINDS:])
        kinds += [(rest, "for other reasons")] if rest else []
        return [f"{count:,} of {records_in:,} {kind}" for count, kind in kinds]


def is_notable(records_in: int, released: int, refused: int) -> bool:
    """Return whether nothing was released of an input that has records, or more than 1 % of them were refused."""
    return (records_in > 0 and released == 0) or refused > NOTABLE_SHARE * records_in


def _plain(description: str) -> str:
    """Return field and fault without the number of a column and without numbers that differ between records."""
    located = _LOCATION.fullmatch(description)
    if located:
        return f"{located[1] or located[2]}: {located[3]}"
    fault = description.removeprefix(": ")
    return re.sub(r"^\d+ cells", "another number of cells", fault)
