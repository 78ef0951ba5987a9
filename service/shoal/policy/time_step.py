"""The step of published times: ``15min``, ``h``, ``day``, ``month``, ``year``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias, cast

__all__ = ["TimeStep", "TimeUnit"]

TimeUnit: TypeAlias = Literal["s", "min", "h", "day", "month", "year"]

_MS: dict[TimeUnit, int] = {
    "s": 1_000,
    "min": 60_000,
    "h": 3_600_000,
    "day": 86_400_000,
    "month": 2_629_746_000,
    "year": 31_556_952_000,
}
"""Length of each unit in ms; of a month and a year the mean of the Gregorian calendar."""
_TEXT = re.compile(r"([1-9][0-9]{0,5})?(s|min|h|day|month|year)")


@dataclass(frozen=True, slots=True)
class TimeStep:
    """``count`` units of time. Steps of months and years have the count 1."""

    count: int
    unit: TimeUnit

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the step of a text like ``15min`` or ``month``; None for any other text."""
        found = _TEXT.fullmatch(text)
        if found is None or (found[1] and found[2] in {"month", "year"}):
            return None
        return cls(int(found[1] or 1), cast("TimeUnit", found[2]))

    @property
    def milliseconds(self) -> int:
        """Length in ms; for months and years the mean length."""
        return self.count * _MS[self.unit]

    @property
    def is_date(self) -> bool:
        """Whether published values are dates without a time of day."""
        return self.unit in {"month", "year"} or (self.unit == "day")

    @property
    def is_whole_days(self) -> bool:
        """Whether every published value is the begin of a day."""
        return self.is_date or self.milliseconds % _MS["day"] == 0

    def __str__(self) -> str:
        """Return the text of the policy."""
        return f"{self.count if self.count > 1 else ''}{self.unit}"
