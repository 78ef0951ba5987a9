"""The invariants of streams, for every rule, k, distribution of subjects, weight of the position and ``max_share``.

Every rule at every k is combined with every other value, and every two other values are combined. `auto` has no
combinations of its own: it decides as the rule that it selects.
"""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from oracle.naive import log_of
from shoal.arrays import Int64Vector
from shoal.streams import Decisions, StreamClusterer
from support.pairs import all_pairs

pytestmark = pytest.mark.conformance

COUNT, DELTA = 110, 24
VALUES = np.round(np.random.default_rng(12).random((COUNT, 2)), 1)
"""Rounded, so that some records are equal."""
SUBJECTS = {
    "one record each": np.arange(COUNT),
    "a dozen subjects": np.random.default_rng(13).integers(0, 12, COUNT),
    "one frequent subject": np.random.default_rng(14).zipf(1.4, COUNT) % 40,
    "one subject": np.zeros(COUNT, np.int64),
}


class Stream:
    """One combination of parameters, run with different blocks and restarts."""

    def __init__(self, rule: str, distribution: str, k: int, position: float, share: float) -> None:
        self.subjects: Int64Vector = SUBJECTS[distribution].astype(np.int64)
        self.k, self.share = k, share
        self._rule, self._position = rule, position

    def _make(self) -> StreamClusterer:
        return StreamClusterer(self.k, DELTA, 2, rule=self._rule, position=self._position, max_share=self.share)

    def run(self, *cuts: int) -> list[Decisions]:
        stream = self._make()
        calls = [stream.push(VALUES[a:b], self.subjects[a:b]) for a, b in pairwise((0, *cuts, COUNT))]
        return [*calls, stream.flush()]

    def resumed(self, stop: int) -> list[Decisions]:
        """Stop after so many records, and continue in a new stream with the held records at their positions."""
        before, after = self._make(), self._make()
        first = before.push(VALUES[:stop], self.subjects[:stop])
        held = before.held_positions()
        again = after.push(VALUES[held], self.subjects[held], held)
        assert not len(again.positions) + len(again.suppressed)
        return [first, after.push(VALUES[stop:], self.subjects[stop:], np.arange(stop, COUNT)), after.flush()]


RULES_AT_K = list(product(["nearest", "greedy", "awo", "block"], [3, 8]))


@pytest.mark.parametrize(
    ("rule_at_k", "distribution", "position", "share"),
    all_pairs(RULES_AT_K, list(SUBJECTS), [0.0, 0.02, 1.0], ["1/k", "half", "all"]),
)
def test_every_rule_satisfies_every_invariant(
    rule_at_k: tuple[str, int], distribution: str, position: float, share: str
) -> None:
    rule, k = rule_at_k
    stream = Stream(rule, distribution, k, position, {"1/k": 1 / k, "half": 0.5, "all": 1.0}[share])
    log = log_of(stream.run())
    assert sorted(position for _, members, _, _ in log for position in members) == list(range(COUNT)), (
        "each record is decided on once"
    )
    left: set[int] = set()
    last_newest = -1
    for kind, entry, _, newest in log:
        members = list(entry)
        owners = stream.subjects[members].tolist()
        held = set(range(newest + 1)) - left
        assert members == sorted(members)
        assert newest - members[0] <= DELTA
        if kind == "suppressed":
            assert len(set(stream.subjects[sorted(held)].tolist())) < k, "suppressed only among fewer than k subjects"
        else:
            assert len(set(owners)) >= k
            assert max(map(owners.count, owners)) <= stream.share * len(owners) + 1e-9
            if distribution == "one record each":
                assert len(members) < 2 * k
        if newest != last_newest:
            assert members[0] == min(held), "the oldest record is decided on first"
        left.update(members)
        last_newest = newest
    assert log_of(stream.run(1, 50, 51)) == log, "for any blocks"
    for stop in (7, 61):
        assert log_of(stream.resumed(stop)) == log, "after a restart with the held records"


@pytest.mark.parametrize(("k", "rule"), [(3, "awo"), (6, "awo"), (7, "block"), (8, "block")])
def test_auto_decides_as_the_rule_that_it_selects(k: int, rule: str) -> None:
    found = [log_of(Stream(name, "a dozen subjects", k, 0.02, 0.5).run()) for name in ("auto", rule)]
    assert found[0] == found[1]
