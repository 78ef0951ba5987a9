"""The resolved ``privacy.l``: how many distinct confidential values a cluster must have, and how evenly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from shoal.policy.schema import DiversitySection

__all__ = ["Diversity", "resolve_diversity"]


@dataclass(frozen=True, slots=True)
class Diversity:
    """l-diversity of every protected attribute.

    Attributes
    ----------
    kind : {"distinct", "entropy", "recursive"}
        ``distinct``: at least l distinct values. ``entropy``: the entropy of the values, in nats, is at least log(l).
        ``recursive``: r_1 < c (r_l + ... + r_m), where r_1 >= ... >= r_m are the counts of the values.
    l : float
        A whole number for ``distinct`` and ``recursive``.
    c : float or None
        Of ``recursive`` only.

    References
    ----------
    Machanavajjhala et al., "l-Diversity: Privacy Beyond k-Anonymity", TKDD 1(1), 2007, definitions 4.1 and 4.2,
    doi:10.1145/1217299.1217302. ``distinct`` is also called p-sensitivity: Truta and Vinay, "Privacy Protection:
    p-Sensitive k-Anonymity Property", ICDE Workshops 2006, doi:10.1109/ICDEW.2006.116.
    """

    kind: Literal["distinct", "entropy", "recursive"]
    l: float  # noqa: E741 - the name of l-diversity's parameter
    c: float | None = None

    def as_plain(self) -> int | dict[str, Any]:
        """Return the value of ``privacy.l`` as plain JSON: a number for ``distinct``."""
        if self.kind == "distinct":
            return int(self.l)
        return {self.kind: self.l if self.c is None else [self.c, int(self.l)]}


def resolve_diversity(section: DiversitySection | None) -> Diversity | None:
    """Return the requirement of a valid section; None without one."""
    if section is None:
        return None
    distinct = section.distinct if section.p_sensitive is None else section.p_sensitive
    if distinct is not None:
        return Diversity("distinct", float(distinct))
    if section.entropy is not None:
        return Diversity("entropy", float(section.entropy))
    if section.recursive is not None and len(section.recursive) == 2:  # noqa: PLR2004 - c and l
        return Diversity("recursive", float(section.recursive[1]), float(section.recursive[0]))
    return None  # `check_document` reports an incomplete section
