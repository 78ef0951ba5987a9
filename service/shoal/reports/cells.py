"""What keeps single people out of a report: coarse counts, and cells of at least k people.

Counts of the original are multiples of k, or "fewer than k". The difference of two such counts is known to k only, so
it shows no single person. Counts of the released rows are rounded too, where they stand beside those of the original.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Shown: TypeAlias = int | str | None
"""A count as a report shows it: 0, a multiple of k, "fewer than k", or None if it is not known."""
Int64Vector: TypeAlias = npt.NDArray[np.int64]
_COUNTED = re.compile(
    r"\b\d+ of (?=\d)|\b\d+ (?=(?:records?|rows?|values?|people|persons?|subjects?|references?|messages?)\b)"
)


def coarse(count: int | None, k: int) -> Shown:
    """Return a count to the nearest multiple of k.

    >>> [coarse(count, 5) for count in (0, 1, 4, 5, 7, 8)]
    [0, 'fewer than 5', 'fewer than 5', 5, 5, 10]
    """
    if count is None or count == 0:
        return count
    return f"fewer than {k}" if count < k else (count + k // 2) // k * k


def in_words(count: int, k: int) -> str:
    """Return a count for a sentence.

    >>> in_words(998, 5), in_words(3, 5)
    ('about 1000', 'fewer than 5')
    """
    shown = coarse(count, k)
    return f"about {shown}" if isinstance(shown, int) and shown else str(shown)


def share(count: int, total: int, k: int) -> float | None:
    """Return a share made of coarse counts; None if one of them is below k.

    >>> share(7, 12, 5), share(3, 12, 5), share(0, 12, 5)
    (0.5, None, 0.0)
    """
    part, whole = coarse(count, k), coarse(total, k)
    return part / whole if isinstance(part, int) and isinstance(whole, int) and whole else None


def without_counts(text: str, k: int) -> str:
    """Return a sentence of the judge with coarse counts.

    >>> without_counts("3 records are missing, 12 of 40 rows", 5)
    'fewer than 5 records are missing, about 10 of about 40 rows'
    """
    return _COUNTED.sub(lambda found: re.sub(r"\d+", lambda one: in_words(int(one[0]), k), found[0]), text)


@dataclass(frozen=True, slots=True)
class Cell:
    """Records with neighbouring values: the people of the original, and numbers of records before and after.

    ``is_public``: whether the policy names the value, so that released rows may show it although no record has it.
    """

    people: Int64Vector  # each once
    before: int
    after: int
    is_public: bool = False

    def joined(self, other: Cell) -> Cell:
        """Return the cell of both."""
        people = np.union1d(self.people, other.people)
        return Cell(people, self.before + other.before, self.after + other.after)

    def may_be_shown(self, k: int) -> bool:
        """Whether at least k people are in it before, and k rows after the release, or none."""
        return len(self.people) >= k and (self.after == 0 or self.after >= k)

    def may_be_named(self, k: int) -> bool:
        """Whether its value may be shown: k people have it, or the policy names it and k rows do."""
        return self.may_be_shown(k) or (self.is_public and not self.before and self.after >= k)


def cells_of(codes: Int64Vector, people: Int64Vector, after: Int64Vector) -> list[Cell]:
    """Return one cell for each code, of which ``after`` has the number of released rows."""
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(after)), side="right")
    groups = np.split(people[order], ends)[: len(after)]
    return [Cell(np.unique(own), len(own), int(rows)) for own, rows in zip(groups, after, strict=True)]


def merge_neighbours(cells: Sequence[Cell], k: int) -> list[tuple[int, int, Cell]]:
    """Join each cell that may not be shown with those after it; return first and last place of each, and the cell."""
    found: list[tuple[int, int, Cell]] = []
    first, open_cell = 0, None
    for place, cell in enumerate(cells):
        open_cell = cell if open_cell is None else open_cell.joined(cell)
        if open_cell.may_be_shown(k):
            found.append((first, place, open_cell))
            first, open_cell = place + 1, None
    if open_cell is not None:
        found.append((first, len(cells) - 1, open_cell))
    while len(found) > 1 and not found[-1][2].may_be_shown(k):
        (start, _, before), (_, end, last) = found[-2:]
        found[-2:] = [(start, end, before.joined(last))]
    return [one for one in found if one[2].may_be_shown(k)]


def merge_rare(cells: Sequence[tuple[str, Cell]], k: int, most: int) -> list[tuple[str | None, Cell]]:
    """Return the most frequent named cells, and one without a name for all others, if there are any."""
    ordered = sorted(cells, key=lambda one: (-max(one[1].before, one[1].after), one[0]))
    may_be_named = [(name, cell) for name, cell in ordered if cell.may_be_named(k)]
    named: list[tuple[str | None, Cell]] = [*may_be_named[:most]]
    shown = {name for name, _ in named}
    rest = _joined(cell for name, cell in ordered if name not in shown)
    if rest is None:
        return named
    while named and not rest.may_be_shown(k):
        rest = rest.joined(named.pop()[1])
    return [*named, (None, rest)] if rest.may_be_shown(k) else []


def _joined(cells: Iterable[Cell]) -> Cell | None:
    found = None
    for cell in cells:
        found = cell if found is None else found.joined(cell)
    return found
