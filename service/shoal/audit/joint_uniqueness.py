"""Measures how many released rows are the only ones with their published values and up to three unchanged fields.

k-anonymity covers the quasi-identifiers. A reader that also knows fields of a person that are published unchanged finds
one row among those that agree in all of them; a row that agrees with no other is found for certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from shoal.audit.fields import FIELD_SEPARATOR
from shoal.audit.releases import ReleasedRows
from shoal.policy import Policy

__all__ = ["MAX_UNIQUE_SHARE", "MIN_RECORDS", "JointUniqueness", "measure_joint_uniqueness"]

IntVector = npt.NDArray[np.int64]

MIN_RECORDS = 30
"""With fewer records most values are unique and most correlations are large by chance."""
MAX_UNIQUE_SHARE = 0.05
"""A larger share of unique values, or of rows that agree with no other, is a warning."""
MAX_FIELDS = 3
"""Most unchanged fields that are combined."""
MAX_JOINT_FIELDS = 12
"""Of more fields, those that single out most rows by themselves are combined: at most 286 sets of two and three."""


@dataclass(frozen=True, slots=True)
class JointUniqueness:
    """Rows that are the only ones with their published quasi-identifiers and some unchanged fields.

    Attributes
    ----------
    names : tuple of str
        The unchanged fields.
    rows, unique : int
        Number of released rows, and of those that agree with no other row of their partition.
    classes : int
        Number of classes of rows that agree.
    are_known : bool
        Whether the policy says of every one of the fields that others may know it: role ``other``, or
        ``publish_unchanged``.
    """

    names: tuple[str, ...]
    rows: int
    unique: int
    classes: int
    are_known: bool

    @property
    def share(self) -> float:
        """Share of unique rows."""
        return self.unique / self.rows

    def warnings(self) -> list[str]:
        """Return a sentence if known fields single out too many rows, without values."""
        if not self.are_known or self.share <= MAX_UNIQUE_SHARE:
            return []
        text = (
            f"published values together with {', '.join(self.names)}: {self.unique} of {self.rows} rows "
            f"({self.share:.0%}) in {self.classes} classes agree with no other row: a person of whom these fields are "
            "known is found; declare them as quasi-identifiers, or leave them out"
        )
        return [text]


def measure_joint_uniqueness(policy: Policy, release: ReleasedRows) -> list[JointUniqueness]:
    """Measure every unchanged field alone, and the worst set of two and of three fields that others may know.

    Returns
    -------
    list of JointUniqueness
        One per unchanged field, in the order of the policy; then at most one of two fields and one of three. Empty for
        fewer than 30 rows.

    Notes
    -----
    Cost: O(n log n) time per set of fields, O(n) memory.
    """
    published, columns = _columns(len(policy.unchanged_fields), release)
    if len(published) < MIN_RECORDS:
        return []
    is_known = [attribute.publish_unchanged for attribute in policy.unchanged_fields]
    names = [attribute.name for attribute in policy.unchanged_fields]

    def measure(fields: Sequence[int]) -> JointUniqueness:
        classes = published
        for field in fields:
            classes = _combine(classes, columns[field])
        counts = np.bincount(classes)
        unique = int(np.count_nonzero(counts == 1))
        known = all(is_known[field] for field in fields)
        return JointUniqueness(tuple(names[field] for field in fields), len(classes), unique, len(counts), known)

    alone = [measure([field]) for field in range(len(columns))]
    known = sorted((field for field in range(len(columns)) if is_known[field]), key=lambda f: -alone[f].unique)
    combined = sorted(known[:MAX_JOINT_FIELDS])
    worst = [
        max(map(measure, combinations(combined, size)), key=lambda found: found.unique)
        for size in range(2, min(MAX_FIELDS, len(combined)) + 1)
    ]
    return [*alone, *worst]


def _columns(width: int, release: ReleasedRows) -> tuple[IntVector, list[IntVector]]:
    """Return codes of partition and quasi-identifiers per row, and codes of each unchanged field.

    A row that could not be read is left out; another check reports it.
    """
    published: dict[tuple[int, str], int] = {}
    known: list[dict[str, int]] = [{} for _ in range(width)]
    classes: list[int] = []
    columns: list[list[int]] = [[] for _ in range(width)]
    for partition, rows in release.by_partition.items():
        for quasi, unchanged in zip(rows.quasi, rows.unchanged, strict=True):
            texts = unchanged.split(FIELD_SEPARATOR) if width else []
            if len(texts) != width:
                continue
            classes.append(published.setdefault((partition, quasi), len(published)))
            for field, text in enumerate(texts):
                columns[field].append(known[field].setdefault(text, len(known[field])))
    return np.array(classes, dtype=np.int64), [np.array(column, dtype=np.int64) for column in columns]


def _combine(classes: IntVector, column: IntVector) -> IntVector:
    """Return codes from 0 of the pairs of two codes."""
    combined: IntVector = np.unique(classes * (int(column.max()) + 1) + column, return_inverse=True)[1]
    return combined
