"""Which rule ``auto`` stands for: settled before the stream begins, so that a restart decides as before."""

from __future__ import annotations

__all__ = ["RULES", "chosen_rule"]

RULES = ("nearest", "greedy", "awo", "block")

SMALLEST_FOR_BLOCK = 7
"""Clusters of fewer are cheap to form among those who are held: better to decide on one at a time."""


def chosen_rule(name: str, k: int, *, has_dominance: bool) -> str:
    """Return the rule that a name stands for; a name other than ``auto`` stands for itself.

    Notes
    -----
    Dominance is kept by rule nearest only. Else block loses least from k = 7 on, and awo below; docs/benchmarks.md has
    the loss of each.
    """
    if name != "auto":
        return name
    if has_dominance:
        return "nearest"
    return "block" if k >= SMALLEST_FOR_BLOCK else "awo"
