"""Where many records are held: an index that finds who is near, wherever that is cheaper than looking at everybody."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from shoal.arrays import Int64Vector
from shoal.clustering.stream import indexed
from shoal.clustering.stream.buffer import Buffer
from shoal.clustering.stream.cell_index import BUILT, LOOKED, NOBODY, SPARED, build, empty_cells
from shoal.clustering.stream.expiry import StreamConstraints, Workspace
from shoal.clustering.stream.growth import Offer
from shoal.clustering.stream.held import GAPS, DecisionBuffer, empty_decision_buffer

__all__ = ["Index"]

Scan: TypeAlias = Callable[[DecisionBuffer, Int64Vector], None]

BUILDING = 160
"""What building cells costs for each record, in looks at one of many in a row."""
REST = 1 << 16
"""Records that arrive before cells are tried again where they did not pay."""


class Index:
    """Decides through cells, or by looking at everybody; the decisions are the same.

    Parameters
    ----------
    buffer, demand, scratch
        Of the rule.
    offer : Offer
        Of rule awo; an empty one stands for rule nearest.
    fewest : int
        Records from which on cells are built.
    scan : callable
        Decides by looking at everybody, on what ``steps`` say is still to come in.

    Notes
    -----
    Whatever is looked at to find them, nothing of that need outlive a restart. Where cells do not pay (many attributes,
    large k, one person's flood) everybody is looked at, and cells are tried again `REST` records later. Looks are
    counted for that, not seconds.
    """

    def __init__(
        self, buffer: Buffer, demand: StreamConstraints, scratch: Workspace, offer: Offer, fewest: int, scan: Scan
    ) -> None:
        self._buffer, self._demand, self._scratch, self._offer, self._scan = buffer, demand, scratch, offer, scan
        self._cells = empty_cells(buffer.capacity, len(buffer.held.coordinates))
        self._fewest, self._resting, self._built = fewest, 0, 0

    def rehearse(self) -> None:
        """Build over nobody, so that all is compiled now and not while the first records wait."""
        self._build()
        self._look_at_all(empty_decision_buffer(0), np.zeros(2, np.int64))

    def decide(self, outcome: DecisionBuffer, staged: int) -> None:
        """Let a slice in, record by record, and decide on all that becomes due on the way."""
        steps, held, scratch, offer = np.array([staged, -1]), self._buffer.held, self._scratch, self._offer
        cells, demand = self._cells, self._demand
        self._resting = max(0, self._resting - staged)
        while (how := indexed.expire_due(held, scratch, cells, offer, outcome, demand, steps)) != indexed.DONE:
            if not self._may_pay(how):
                self._look_at_all(outcome, steps)
                return
            self._build()

    def _may_pay(self, how: int) -> bool:
        """Whether to build cells anew; where they did not pay, not for a while."""
        if how == indexed.TOO_FEW or len(self._buffer) < self._fewest:
            return False
        if how == indexed.TOO_DEAR or not self._has_paid():
            self._resting = REST
        return self._resting == 0

    def _has_paid(self) -> bool:
        """Whether the cells that were built last have spared more than they cost; none have cost nothing."""
        cost = indexed.DEARER * self._cells.state[LOOKED] + BUILDING * self._built
        return bool(cost <= self._cells.state[SPARED])

    def _build(self) -> None:
        self._built = len(self._buffer)
        build(self._cells, self._buffer.held, self._scratch.order, self._scratch.distances)

    def _look_at_all(self, outcome: DecisionBuffer, steps: Int64Vector) -> None:
        """Decide on what is left of a slice without cells, and forget them."""
        self._cells.state[LOOKED] = self._cells.state[SPARED] = self._built = 0
        self._cells.state[BUILT] = NOBODY
        if self._buffer.held.gaps[GAPS]:
            self._buffer.move_to_front(int(steps[0]))
        self._scan(outcome, steps)
