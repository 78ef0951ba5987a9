"""Rule awo decides through its cell index as by scans of all held records."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.naive import Entry, log_of
from shoal.arrays import Float64Matrix, Int64Matrix, Int64Vector
from shoal.streams import StreamClusterer, indexed
from shoal.streams.held_records import Buffer
from shoal.streams.indexed import SCAN_COST
from support.by_night import at_night

pytestmark = pytest.mark.property

NEVER_INDEXED = 1 << 40


@pytest.fixture(autouse=True)
def retried_at_once() -> Iterator[None]:
    """Try the index again with every block, although it does not pay for so few records."""
    before = indexed.INDEXED_FROM, indexed.RETRY_AFTER
    indexed.RETRY_AFTER = 1
    yield
    indexed.INDEXED_FROM, indexed.RETRY_AFTER = before


def decided(
    min_held: int,
    k: int,
    delta: int,
    values: Float64Matrix,
    subjects: Int64Vector | None = None,
    *,
    cuts: tuple[int, ...] = (),
    max_share: float = 0.5,
    positions: Int64Vector | None = None,
    expiry_keys: Int64Matrix | None = None,
    population: int = 0,
) -> list[Entry]:
    indexed.INDEXED_FROM = min_held
    limits = () if expiry_keys is None else (delta // 2,) * expiry_keys.shape[1]
    options: dict[str, Any] = {"max_share": max_share, "expiry_limits": limits, "min_population": population}
    stream = StreamClusterer(k, delta, values.shape[1], rule="awo", **options)
    columns: Any = values, subjects, positions, expiry_keys
    calls = []
    for start, end in pairwise([0, *cuts, len(values)]):
        block: Any = [None if column is None else column[start:end] for column in columns]
        calls.append(stream.push(*block))
    return log_of([*calls, stream.flush()])


@st.composite
def streams(draw: st.DrawFn) -> dict[str, Any]:
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(30, 600)), draw(st.integers(1, 5))
    k = draw(st.integers(2, 12))
    delta = draw(st.integers(2 * k, 200))
    shape = draw(st.sampled_from(["uniform", "tied", "one", "line", "drift", "huge", "tiny", "far"]))
    values = random.random((n, d))
    if shape == "tied":
        values = random.integers(0, 3, (n, d)).astype(np.float64)
    elif shape == "one":
        values = np.ones((n, d))
    elif shape == "line":
        values[:] = values[:, :1]
    elif shape == "drift":
        values += np.arange(n)[:, None] * 0.05
    elif shape == "huge":
        values = random.choice([-1e300, 1e300, 2e300, 0.0], (n, d))
    elif shape == "tiny":
        values *= 1e-170
    elif shape == "far":
        values = random.standard_cauchy((n, d)) ** 3
    subject_count = draw(st.sampled_from([0, 3, 12, 60]))
    subjects = np.where(random.random(n) < 0.5, 0, random.integers(0, subject_count, n)) if subject_count else None
    gaps = draw(st.booleans())
    cuts = np.cumsum(random.integers(1, draw(st.sampled_from([3, 30, 300])), n))
    clock = draw(st.booleans())
    return {
        "k": k,
        "delta": delta,
        "values": values,
        "subjects": subjects,
        "cuts": tuple(cuts[cuts < n].tolist()),
        "max_share": draw(st.sampled_from([0.5, 1.0, 1.0 / k])),
        "positions": np.cumsum(random.integers(1, 9, n)) if gaps else None,
        "expiry_keys": np.cumsum(random.integers(0, 4, (n, 1)), axis=0) if clock else None,
        "population": draw(st.sampled_from([0, 5])),
    }


@given(streams())
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_an_index_does_not_change_decisions(stream: dict[str, Any]) -> None:
    assert decided(stream["k"], **stream) == decided(NEVER_INDEXED, **stream)


@given(streams(), st.floats(0.01, 100.0))
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_an_index_is_rebuilt_when_coordinates_are_replaced(stream: dict[str, Any], scale: float) -> None:
    values, half, logs = np.clip(stream["values"], -1e100, 1e100), len(stream["values"]) // 2, []
    for min_held in (stream["k"], NEVER_INDEXED):
        indexed.INDEXED_FROM = min_held
        clusterer = StreamClusterer(stream["k"], stream["delta"], values.shape[1], rule="awo")
        calls = [clusterer.push(values[:half])]
        clusterer.replace_coordinates(scale * values[clusterer.held_positions()][:, ::-1])
        calls += [clusterer.push(scale * values[half:, ::-1]), clusterer.flush()]
        logs.append(log_of(calls))
    assert logs[0] == logs[1]


@pytest.mark.parametrize("d", [2, *at_night(1, 6)])
def test_an_index_does_not_change_decisions_among_thousands_of_records(d: int) -> None:
    values = np.random.default_rng(d).random((16_000, d))
    values[::7] = values[3]  # many equal records
    through = decided(1000, 4, 6000, values, cuts=(1, 5000, 12_345))
    assert through == decided(NEVER_INDEXED, 4, 6000, values)


def test_an_index_that_pays_is_used_before_and_after_a_mass_expiry() -> None:
    indexed.INDEXED_FROM, indexed.RETRY_AFTER = 1000, 1 << 16
    values, times = np.random.default_rng(1).random((50_000, 2)), np.repeat([0, 100], 25_000)
    stream = StreamClusterer(4, 6000, 2, rule="awo", expiry_limits=(10,))
    held, saved = [], []
    for part in np.split(np.arange(50_000), 50):
        stream.push(values[part], expiry_keys=times[part, None])
        held.append(len(stream.held_positions()))
        indexed_rule: Any = stream._rule
        saved.append(indexed_rule._index.state[SCAN_COST])
    assert held[24] > 2000
    assert held[25] < 1100, "the clock has released all older records"
    assert saved[24] > 0
    assert saved[-1] > 0


def test_an_index_that_does_not_pay_causes_no_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, compact = [], Buffer.compact

    def counted(buffer: Buffer, arriving: int = 0) -> None:
        calls.append(arriving)
        compact(buffer, arriving)

    monkeypatch.setattr(Buffer, "compact", counted)
    values = np.ones((10_000, 2))
    indexed.INDEXED_FROM = 200
    indexed.RETRY_AFTER = 1 << 16
    stream = StreamClusterer(6, 500, 2, rule="awo")
    for start in range(0, 10_000, 8):
        stream.push(values[start : start + 8])
    assert len(calls) <= 10_000 // 1024 + 3
