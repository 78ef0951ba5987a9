"""Which rule ``auto`` stands for: settled before the stream begins, so that a restart decides as before."""

from __future__ import annotations

__all__ = ["RULES", "chosen_rule", "keeps_dominance"]

RULES = ("nearest", "greedy", "awo", "block")


def chosen_rule(name: str) -> str:
    """Return the rule that a name stands for; a name other than ``auto`` stands for itself.

    Notes
    -----
    ``auto`` is ``nearest``: the only one that keeps dominance, and the one that docs/privacy.md attacks. Others lose
    less (docs/benchmarks.md); ADR 14 says what is to be measured before ``auto`` may be one of them.
    """
    return "nearest" if name == "auto" else name


def keeps_dominance(name: str) -> bool:
    """Whether the rule that a name stands for keeps ``privacy.dominance``."""
    return chosen_rule(name) == "nearest"
