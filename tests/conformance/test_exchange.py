"""Exchanges of records for subjects and for categories, compared with plain Python that computes every loss anew."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from oracle.exchange import Exchanges
from support.by_night import at_night
from support.input_size import sized
from support.random_exchanges import RandomPartition, random_partition

pytestmark = pytest.mark.conformance


def plain(case: RandomPartition) -> Exchanges:
    return Exchanges(
        case.rows.tolist(),
        case.codes.tolist(),
        case.costs.tolist(),
        case.agree.tolist(),
        case.subjects.tolist(),
        case.max_share,
        case.k,
    )


@pytest.mark.parametrize("seeds", [range(sized(60, 25)), *at_night(range(100, 1000))])
def test_every_exchange_is_the_one_that_plain_python_finds(seeds: range) -> None:
    happened: Counter[str] = Counter()
    for seed in seeds:
        case = random_partition(np.random.default_rng(seed), most=30)
        twin, (start, is_feasible) = plain(case), case.repaired()
        assert (start.tolist(), is_feasible) == twin.repaired(case.labels.tolist()), seed
        happened["repaired" if is_feasible else "not repaired"] += start.tolist() != case.labels.tolist()
        found = case.exchanged(start)
        assert found.tolist() == twin.exchanged(start.tolist()), seed
        happened["exchanged"] += found.tolist() != start.tolist()
        happened["moved"] += np.bincount(found).tolist() != np.bincount(start, minlength=found.max() + 1).tolist()
    assert min(happened[name] for name in ("repaired", "not repaired", "exchanged", "moved")) > len(seeds) / 30
