"""What must hold for every rule, whoever owns the records, at every k, weight of the position and cap on shares.

Every rule at every k meets every other value, and every two other values meet. `auto` has no combinations of its own:
it decides as the rule that it stands for.
"""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from oracle.naive import log_of
from shoal.arrays import Int64Vector
from shoal.clustering.stream import Decisions, StreamClusterer
from support.pairs import all_pairs

pytestmark = pytest.mark.conformance

COUNT, DELTA = 110, 24
VALUES = np.round(np.random.default_rng(12).random((COUNT, 2)), 1)
"""Rounded: some records are alike."""
PEOPLE = {
    "a person each": np.arange(COUNT),
    "a dozen people": np.random.default_rng(13).integers(0, 12, COUNT),
    "one who comes often": np.random.default_rng(14).zipf(1.4, COUNT) % 40,
    "one person": np.zeros(COUNT, np.int64),
}


class Stream:
    """One combination, to be run in different ways."""

    def __init__(self, rule: str, people: str, k: int, position: float, share: float) -> None:
        self.people: Int64Vector = PEOPLE[people].astype(np.int64)
        self.k, self.share = k, share
        self._rule, self._position = rule, position

    def _make(self) -> StreamClusterer:
        return StreamClusterer(self.k, DELTA, 2, rule=self._rule, position=self._position, max_share=self.share)

    def run(self, *cuts: int) -> list[Decisions]:
        stream = self._make()
        calls = [stream.push(VALUES[a:b], self.people[a:b]) for a, b in pairwise((0, *cuts, COUNT))]
        return [*calls, stream.flush()]

    def resumed(self, stop: int) -> list[Decisions]:
        """Stop after so many records, and go on anew with what was held, at its places."""
        before, after = self._make(), self._make()
        first = before.push(VALUES[:stop], self.people[:stop])
        held = before.held_positions()
        again = after.push(VALUES[held], self.people[held], held)
        assert not len(again.positions) + len(again.suppressed)
        return [first, after.push(VALUES[stop:], self.people[stop:], np.arange(stop, COUNT)), after.flush()]


RULES_AT_K = list(product(["nearest", "greedy", "awo", "block"], [3, 8]))


@pytest.mark.parametrize(
    ("rule_at_k", "people", "position", "share"),
    all_pairs(RULES_AT_K, list(PEOPLE), [0.0, 0.02, 1.0], ["1/k", "half", "all"]),
)
def test_every_rule_keeps_every_promise(rule_at_k: tuple[str, int], people: str, position: float, share: str) -> None:
    rule, k = rule_at_k
    stream = Stream(rule, people, k, position, {"1/k": 1 / k, "half": 0.5, "all": 1.0}[share])
    log = log_of(stream.run())
    assert sorted(place for _, members, _, _ in log for place in members) == list(range(COUNT)), "each record once"
    left: set[int] = set()
    together = -1
    for kind, entry, _, newest in log:
        members = list(entry)
        owners = stream.people[members].tolist()
        held = set(range(newest + 1)) - left
        assert members == sorted(members)
        assert newest - members[0] <= DELTA
        if kind == "suppressed":
            assert len(set(stream.people[sorted(held)].tolist())) < k, "only among fewer than k people"
        else:
            assert len(set(owners)) >= k
            assert max(map(owners.count, owners)) <= stream.share * len(owners) + 1e-9
            if people == "a person each":
                assert len(members) < 2 * k
        if newest != together:
            assert members[0] == min(held), "the oldest is decided on first"
        left.update(members)
        together = newest
    assert log_of(stream.run(1, 50, 51)) == log, "however the stream is cut"
    for stop in (7, 61):
        assert log_of(stream.resumed(stop)) == log, "after a restart with what was held"


@pytest.mark.parametrize(("k", "rule"), [(3, "awo"), (6, "awo"), (7, "block"), (8, "block")])
def test_auto_decides_as_the_rule_it_stands_for(k: int, rule: str) -> None:
    found = [log_of(Stream(name, "a dozen people", k, 0.02, 0.5).run()) for name in ("auto", rule)]
    assert found[0] == found[1]
