"""Who joins the expiring record. Every rule stands behind the same door: a block in, decisions out."""

from __future__ import annotations

import math
from functools import partial
from typing import Protocol

import numpy as np

from shoal.arrays import Float64Matrix, Int32Vector, Int64Vector
from shoal.clustering.static.mdav import mdav
from shoal.clustering.static.refinement import descended, precompile_refinement
from shoal.clustering.stream import block as everybody
from shoal.clustering.stream import growth, nearest
from shoal.clustering.stream.buffer import Buffer, CoordinateBlock
from shoal.clustering.stream.expiry import StreamConstraints, empty_workspace, is_populated
from shoal.clustering.stream.held import FLUSHED, NOT_DUE, DecisionBuffer, empty_decision_buffer
from shoal.clustering.stream.index import Index
from shoal.policy import RULES, resolve_rule, supports_dominance

__all__ = ["Rule", "make_rule", "rule_faults"]

OFFERED = 4
"""Records of which awo takes the cheapest, in units of k: more cost time and gain a hundredth."""
INDEXED_FROM = {"nearest": 4096, "awo": 1000}
"""Held records from which on an index may be faster than looking at all of them, as awo does again and again."""
MOST_INDEXED = 8
"""Coordinates up to which cells may be of use."""


class Rule(Protocol):
    """Decides on held records."""

    def take(self, block: CoordinateBlock) -> DecisionBuffer:
        """Let a checked block in, record by record, and decide on all that becomes due on the way."""

    def finish(self, newest: int) -> DecisionBuffer:
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

    def __init__(self, buffer: Buffer, demand: StreamConstraints) -> None:
        self._buffer = buffer
        self._demand = demand
        self._scratch = empty_workspace(buffer.capacity)

    def rehearse(self) -> None:
        """Decide on nothing, so that all is compiled now and not while the first records wait."""
        self._decide(empty_decision_buffer(0), 0)
        self._conclude(empty_decision_buffer(0), -1)

    def take(self, block: CoordinateBlock) -> DecisionBuffer:
        """Let a checked block in, record by record, and decide on all that becomes due on the way."""
        count = len(block.positions)
        outcome = empty_decision_buffer(len(self._buffer) + count)
        done = 0
        while done < count:
            staged = self._buffer.stage(block, done)
            self._decide(outcome, staged)
            done += staged
        return _trimmed(outcome)

    def finish(self, newest: int) -> DecisionBuffer:
        """Decide on all that is held; fewer than k subjects are suppressed."""
        outcome = empty_decision_buffer(len(self._buffer))
        self._conclude(outcome, newest)
        return _trimmed(outcome)

    def _decide(self, outcome: DecisionBuffer, staged: int) -> None:
        self._scan(outcome, np.array([staged, -1]))

    def _scan(self, outcome: DecisionBuffer, steps: Int64Vector) -> None:
        """Decide by looking at everybody; ``steps`` (2,): how many are still to come in, and the newest position."""
        nearest.expire_due(self._buffer.held, self._scratch, outcome, self._demand, steps)

    def _conclude(self, outcome: DecisionBuffer, newest: int) -> None:
        nearest.expire_rest(self._buffer.held, self._scratch, outcome, self._demand, newest)


class _Indexed(Nearest):
    """What a rule does otherwise that finds records through an `Index`."""

    _index: Index

    def rehearse(self) -> None:
        """Do so for both ways of finding records."""
        super().rehearse()
        self._index.rehearse()

    def _decide(self, outcome: DecisionBuffer, staged: int) -> None:
        self._index.decide(outcome, staged)

    def _conclude(self, outcome: DecisionBuffer, newest: int) -> None:
        self._buffer.move_to_front()
        super()._conclude(outcome, newest)


class IndexedNearest(_Indexed):
    """Rule nearest where many records may be held: finds the nearest through an `Index`.

    Parameters
    ----------
    buffer, demand
        As of `Nearest`; no ``dominance``.
    fewest : int
        Records from which on an index is of use.

    Notes
    -----
    Cost per cluster: near O(k + log held) for few attributes; never much above that of `Nearest`.
    """

    def __init__(self, buffer: Buffer, demand: StreamConstraints, fewest: int) -> None:
        super().__init__(buffer, demand)
        offer = growth.empty_offer(0, len(buffer.held.coordinates), demand.k, 0.0)
        self._index = Index(buffer, demand, self._scratch, offer, fewest, self._scan)


class BlockRule(Nearest):
    """All that is held leaves when the oldest expires, as one table: MDAV, then descent, clusters of k to 2k - 1.

    Parameters
    ----------
    buffer, demand
        As of `Nearest`.
    pressure : float
        Weight of what it costs to leave others behind, where a cluster grows (`Growth`); 0 is greedy.

    Notes
    -----
    Where one of these clusters has fewer than k people, or somebody above ``max_share``, nothing of that happens, and
    the oldest leaves alone, in a cluster that grows (`Growth`): to merge clusters until all fit loses up to three times
    as much. The end of the stream is decided on so all the same, and by rule nearest where not even all together fit.
    Weighted positions are one more coordinate. Loses less than nearest in all but a few settings of small k, because
    what is left of a cluster when its middle has gone does not wait for strangers (docs/reports/benchmarks.md).
    Cost: per release that of `clustering.static.mdav` and `clustering.static.refinement.descended` for the held
    records.
    """

    def __init__(self, buffer: Buffer, demand: StreamConstraints, pressure: float) -> None:
        most = min(OFFERED * demand.k, buffer.capacity) if pressure else buffer.capacity
        self._offer = growth.empty_offer(most, len(buffer.held.coordinates), demand.k, pressure)
        super().__init__(buffer, demand)

    def _scan(self, outcome: DecisionBuffer, steps: Int64Vector) -> None:
        refused = NOT_DUE
        held, scratch, offer, demand = self._buffer.held, self._scratch, self._offer, self._demand
        while (cause := everybody.expire_due(held, scratch, offer, outcome, demand, steps, refused)) != NOT_DUE:
            refused = NOT_DUE if self._release_all(outcome, int(steps[1]), cause) else cause

    def _conclude(self, outcome: DecisionBuffer, newest: int) -> None:
        held, scratch, demand = self._buffer.held, self._scratch, self._demand
        if is_populated(held, scratch, demand) and len(self._buffer):
            rows, labels = self._partition()
            if len(labels) and everybody.make_fit(held, rows, labels, scratch, demand):
                everybody.release(held, outcome, demand, labels, newest, FLUSHED)
        super()._conclude(outcome, newest)

    def rehearse(self) -> None:
        """Let records leave that never were, so that all that is called from here is compiled now."""
        super().rehearse()
        precompile_refinement(self._demand.delta + 1)
        held, count = self._buffer.held, min(2 * self._demand.k, self._buffer.capacity)
        weight = self._demand.omega_p.copy()
        for let_go in (self._conclude, partial(self._release_all, cause=FLUSHED)):
            held.subjects[:count] = np.arange(count)
            held.line[:] = 0, count
            let_go(empty_decision_buffer(count), count - 1)
        held.subjects[:count] = 0
        held.line[:] = 0
        self._demand.omega_p[:] = weight

    def _release_all(self, outcome: DecisionBuffer, newest: int, cause: int) -> bool:
        """Let everything leave if all clusters are fit for it; return whether it did."""
        held, scratch, demand = self._buffer.held, self._scratch, self._demand
        _, labels = self._partition()
        if not len(labels) or not everybody.is_fit(held, labels, scratch, demand):
            return False
        everybody.release(held, outcome, demand, labels, newest, cause)
        return True

    def _partition(self) -> tuple[Float64Matrix, Int32Vector]:
        """Return all that is held as a table, and its clusters; both empty if it cannot be partitioned."""
        rows = everybody.table_of(self._buffer.held, self._scratch, self._demand)
        k = self._demand.k
        return rows, descended(rows, mdav(rows, k), k) if len(rows) else np.empty(0, np.int32)


class Growth(BlockRule):
    """The expiring record's cluster grows round its mean: greedily, or minding what it costs to leave others behind.

    Notes
    -----
    The cost of leaving a record behind is half its mean squared distance to the k - 1 nearest that are held, times its
    age as a share of delta, times the weight. It is worked out anew for every decision, from nothing but what is held.
    Old records are taken along where fewer than k would be left for the next that expires. The end of the stream is
    decided on as by rule block.
    Cost per cluster: O(k held d); greedy, to which everybody is offered, O(held log held) more.
    """

    def _scan(self, outcome: DecisionBuffer, steps: Int64Vector) -> None:
        growth.expire_due(self._buffer.held, self._scratch, self._offer, outcome, self._demand, steps)


class IndexedGrowth(_Indexed, Growth):
    """Rule awo where many records may be held: finds who may join, and what leaving them costs, through an `Index`.

    Parameters
    ----------
    buffer, demand, pressure
        As of `Growth`; ``pressure`` is not 0.
    fewest : int
        Records from which on an index is of use.

    Notes
    -----
    Cost per cluster: near O(k^2 + k log held) for few attributes; never much above that of `Growth`.
    """

    def __init__(self, buffer: Buffer, demand: StreamConstraints, pressure: float, fewest: int) -> None:
        super().__init__(buffer, demand, pressure)
        self._index = Index(buffer, demand, self._scratch, self._offer, fewest, self._scan)


def rule_faults(name: object, *, has_dominance: bool = False) -> list[str]:
    """Say what is wrong with the name of a rule; empty if nothing is."""
    if not isinstance(name, str):
        return ["rule: must be a name"]
    if name not in {"auto", *RULES}:
        return [f"rule: unknown, use one of auto, {', '.join(RULES)}"]
    if has_dominance and not supports_dominance(name):
        return ["rule: dominance is kept by rule nearest only, use 'auto' or 'nearest'"]
    return []


def make_rule(name: str, buffer: Buffer, demand: StreamConstraints) -> Rule:
    """Return the rule of a checked name, compiled."""
    rule = _chosen(name, buffer, demand)
    rule.rehearse()
    return rule


def _chosen(name: str, buffer: Buffer, demand: StreamConstraints) -> Nearest:
    chosen = resolve_rule(name, demand.k, has_dominance=demand.dominance.share > 0)
    fewest = INDEXED_FROM.get(chosen, 0)
    may_pay = 0 < fewest <= demand.delta and len(buffer.held.coordinates) <= MOST_INDEXED
    if chosen == "nearest" and may_pay and demand.dominance.share == 0.0:
        return IndexedNearest(buffer, demand, fewest)
    if chosen == "nearest":
        return Nearest(buffer, demand)
    if chosen == "block":
        return BlockRule(buffer, demand, _pressure(demand.k))
    if chosen == "awo" and may_pay:
        return IndexedGrowth(buffer, demand, _pressure(demand.k), fewest)
    return Growth(buffer, demand, _pressure(demand.k) if chosen == "awo" else 0.0)


def _pressure(k: int) -> float:
    """Return the weight of what it costs to leave records behind: larger clusters leave more of them."""
    return min(max(0.6 * math.log2(k), 1.0), 2.5)


def _trimmed(outcome: DecisionBuffer) -> DecisionBuffer:
    clusters, released, suppressed = outcome.counts.tolist()
    return DecisionBuffer(
        outcome.positions[:released].copy(),
        outcome.clusters[:, :clusters].copy(),
        outcome.suppressed[:, :suppressed].copy(),
        outcome.counts,
    )
