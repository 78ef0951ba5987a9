"""Which rule ``auto`` stands for: settled before the stream begins, so that a restart decides as before."""

from __future__ import annotations

__all__ = ["BLOCK_FROM_K", "RULES", "chosen_rule", "keeps_dominance", "reason_of_choice"]

RULES = ("nearest", "greedy", "awo", "block")
BLOCK_FROM_K = 7
"""From this k on ``auto`` is ``block``: below, ``awo`` loses less (docs/reports/benchmarks.md, ADR 14)."""


def chosen_rule(name: str, k: int, *, has_dominance: bool = False) -> str:
    """Return the rule that a name stands for; a name other than ``auto`` stands for itself.

    Parameters
    ----------
    name : str
        As in ``stream.rule``.
    k : int
        Distinct subjects in a cluster.
    has_dominance : bool
        Whether ``privacy.dominance`` is asked for, which is kept by ``nearest`` only.
    """
    if name != "auto":
        return name
    if has_dominance:
        return "nearest"
    return "block" if k >= BLOCK_FROM_K else "awo"


def reason_of_choice(name: str, k: int, *, has_dominance: bool = False) -> str:
    """Say why the name stands for that rule; empty where the policy names one."""
    if name != "auto":
        return ""
    if has_dominance:
        return "auto: nearest, the only rule that keeps dominance"
    where = f"from k = {BLOCK_FROM_K} on" if k >= BLOCK_FROM_K else f"below k = {BLOCK_FROM_K}"
    return f"auto: {chosen_rule(name, k)} {where}"


def keeps_dominance(name: str) -> bool:
    """Whether the rule that a name stands for keeps ``privacy.dominance``."""
    return chosen_rule(name, BLOCK_FROM_K, has_dominance=True) == "nearest"
