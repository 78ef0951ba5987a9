"""Who joins the expiring record. Every rule stands behind the same door: a block in, decisions out."""

from __future__ import annotations

from typing import Protocol

from shoal.engine.buffer import Block, Buffer
from shoal.kernel import nearest
from shoal.kernel.held import Outcome, empty_outcome
from shoal.kernel.nearest import Demand

__all__ = ["Nearest", "Rule", "make_rule", "rule_faults"]

PLANNED = ("awo", "block", "greedy")


class Rule(Protocol):
    """Decides on held records."""

    def take(self, block: Block) -> Outcome:
        """Let a checked block in, record by record, and decide on all that becomes due on the way."""

    def finish(self, newest: int) -> Outcome:
        """Decide on all that is held; ``newest`` is the last position that arrived."""


class Nearest:
    """Algorithms 2 and 3 of paper *steered* with Note 1: the expiring record and its nearest, until k subjects are in.

    Parameters
    ----------
    buffer : Buffer
        Where records are held; this rule is its only user.
    demand : Demand
        k, delta, weight of the position, largest share, reach of the marks.

    Notes
    -----
    Deviation from the paper: records of a subject that is in already come along as they are met (the paper leaves it
    open), and what a subject owns above ``max_share`` is handed back, the farthest first.
    Cost per cluster: O(held d + k^2 log(held / k)); O(held d + members log held) more where a subject occurs twice
    among the nearest.
    """

    def __init__(self, buffer: Buffer, demand: Demand) -> None:
        self._buffer = buffer
        self._demand = demand
        self._scratch = nearest.empty_scratch(buffer.capacity)
        self._decide(empty_outcome(0), 0)  # compiles here, not while the first records wait
        self._conclude(empty_outcome(0), -1)

    def take(self, block: Block) -> Outcome:
        """Let a checked block in, record by record, and decide on all that becomes due on the way."""
        count = len(block.positions)
        outcome = empty_outcome(len(self._buffer) + count)
        done = 0
        while done < count:
            staged = self._buffer.stage(block, done)
            self._decide(outcome, staged)
            done += staged
        return _trimmed(outcome)

    def finish(self, newest: int) -> Outcome:
        """Decide on all that is held; fewer than k subjects are suppressed."""
        outcome = empty_outcome(len(self._buffer))
        self._conclude(outcome, newest)
        return _trimmed(outcome)

    def _decide(self, outcome: Outcome, staged: int) -> None:
        nearest.expire_due(self._buffer.held, self._scratch, outcome, self._demand, staged)

    def _conclude(self, outcome: Outcome, newest: int) -> None:
        nearest.expire_rest(self._buffer.held, self._scratch, outcome, self._demand, newest)


def rule_faults(name: object) -> list[str]:
    """Say what is wrong with the name of a rule; empty if nothing is."""
    if not isinstance(name, str):
        return ["rule: must be a name"]
    if name in {"nearest", "auto"}:
        return []
    if name in PLANNED:
        return [f"rule: '{name}' is not yet available, use 'auto' or 'nearest'"]
    return [f"rule: unknown, use one of auto, nearest, {', '.join(PLANNED)} (the last {len(PLANNED)} not yet)"]


def make_rule(name: str, buffer: Buffer, demand: Demand) -> Rule:
    """Return the rule of a checked name; ``auto`` is nearest so far."""
    makers = {"nearest": Nearest, "auto": Nearest}
    return makers[name](buffer, demand)


def _trimmed(outcome: Outcome) -> Outcome:
    clusters, released, suppressed = outcome.counts.tolist()
    return Outcome(
        outcome.positions[:released].copy(),
        outcome.clusters[:, :clusters].copy(),
        outcome.suppressed[:, :suppressed].copy(),
        outcome.counts,
    )
