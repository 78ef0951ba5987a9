"""Decisions of streams scaled by spreads depend neither on blocks nor on restarts, learned or not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shoal.streams import spreads
from support.by_night import by_day
from support.random_streams import RandomStream, random_stream

pytestmark = pytest.mark.property

WARMUPS = (1, 3, 32)
"""Clusters after which spreads are those of published values: one, a few, and more than most of these streams have."""
RULES = ("nearest", "greedy", "awo", "block")


@st.composite
def streams(draw: st.DrawFn) -> tuple[RandomStream, int]:
    """Draw a stream, and the clusters after which spreads are learned."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    return random_stream(random, [draw(st.sampled_from(RULES))]), draw(st.sampled_from(WARMUPS))


@settings(max_examples=by_day(80, 500))
@given(streams(), st.data())
def test_blocks_do_not_change_decisions(given_stream: tuple[RandomStream, int], data: st.DataObject) -> None:
    stream, warmup = given_stream
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spreads, "WARMUP", warmup)
        expected = stream.whole()
        assert stream.whole(cuts) == expected
        assert stream.whole(range(len(stream))) == expected


@settings(max_examples=by_day(60, 500))
@given(streams(), st.data())
def test_restarts_do_not_change_decisions(given_stream: tuple[RandomStream, int], data: st.DataObject) -> None:
    """After some records, or after each of them."""
    stream, warmup = given_stream
    places = range(1, len(stream))
    stops = (
        places if data.draw(st.booleans()) else sorted(data.draw(st.sets(st.sampled_from([*places, 1]), max_size=4)))
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spreads, "WARMUP", warmup)
        assert stream.restarted(stops, cuts) == stream.whole()
