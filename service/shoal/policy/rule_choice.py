"""Resolve the stream rule ``auto``.

The rule is resolved from the policy alone, before the stream starts, so that a restarted stream uses the same rule.
"""

from __future__ import annotations

__all__ = ["BLOCK_FROM_K", "RULES", "explain_rule", "resolve_rule", "supports_dominance"]

RULES = ("nearest", "greedy", "awo", "block")
BLOCK_FROM_K = 7
"""From this k on, ``auto`` selects ``block``. Below it, ``awo`` loses less (docs/reports/benchmarks.md, ADR 14)."""


def resolve_rule(name: str, k: int, *, has_dominance: bool = False, protects_values: bool = False) -> str:
    """Return the rule for a value of ``stream.rule``. Any value other than ``auto`` is returned unchanged.

    Parameters
    ----------
    name : str
        Value of ``stream.rule``.
    k : int
        Minimum number of distinct subjects in a cluster.
    has_dominance : bool
        Whether ``privacy.dominance`` is set. Only ``nearest`` supports it.
    protects_values : bool
        Whether the policy has ``l``, ``t`` or a largest share of a value. Rules that form one cluster at a time take
        the near records, until the held ones lack the values that the last records need; ``block`` suppresses fewer.
    """
    if name != "auto":
        return name
    if has_dominance:
        return "nearest"
    return "block" if protects_values or k >= BLOCK_FROM_K else "awo"


def explain_rule(name: str, k: int, *, has_dominance: bool = False, protects_values: bool = False) -> str:
    """Return why ``auto`` selected its rule; an empty string if the policy names a rule. Parameters as above."""
    if name != "auto":
        return ""
    if has_dominance:
        return "auto: nearest, the only rule that keeps dominance"
    if protects_values:
        return "auto: block, which suppresses the fewest records under l, t and shares of values"
    where = f"from k = {BLOCK_FROM_K} on" if k >= BLOCK_FROM_K else f"below k = {BLOCK_FROM_K}"
    return f"auto: {resolve_rule(name, k)} {where}"


def supports_dominance(name: str) -> bool:
    """Return whether a value of ``stream.rule`` can be combined with ``privacy.dominance``."""
    return resolve_rule(name, BLOCK_FROM_K, has_dominance=True) == "nearest"
