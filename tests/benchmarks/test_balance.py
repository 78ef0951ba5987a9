"""The losses of mixed streams, computed from what is published, by hand-made releases."""

from __future__ import annotations

from typing import Any

import pytest
from balance import by_pipe, by_tables, geometric, losses_of
from mixed_streams import MixedStream, mixed_streams, unseen_streams
from scaling import CANDIDATES, scaled_by
from shoal.streams import spreads

pytestmark = pytest.mark.unit

AREAS = {"north": {"coast": ["a", "b"], "hills": ["c"]}, "south": {"plain": ["d"]}}


def stream_of(
    delta: int = 200, clocks: tuple[str, ...] = (), **columns: tuple[dict[str, Any], list[Any]]
) -> MixedStream:
    attributes = {name: declared for name, (declared, _) in columns.items()}
    return MixedStream(
        "made by hand", attributes, {name: column for name, (_, column) in columns.items()}, 2, delta, clocks
    )


def test_a_number_loses_its_share_of_the_variance() -> None:
    stream = stream_of(age=({"scale": "numeric"}, [10, 20, 30, 40]))
    assert losses_of(stream, [(n, {"age": age}) for n, age in enumerate([15, 15, 35, 35])]).total == {"age": 0.2}


def test_missing_numbers_do_not_count() -> None:
    stream = stream_of(age=({"scale": "numeric"}, [10, 20, None, 30]))
    released: list[tuple[int, dict[str, Any]]] = [
        (0, {"age": 10}),
        (1, {"age": 20}),
        (2, {"age": 25}),
        (3, {"age": None}),
    ]
    assert losses_of(stream, released).mean == 0.0


def test_a_rank_loses_its_mean_difference() -> None:
    stream = stream_of(grade=({"scale": "ordinal", "order": ["low", "mid", "high"]}, ["low", "high", "mid"]))
    released = [(n, {"grade": "mid"}) for n in range(3)]
    assert losses_of(stream, released).total["grade"] == pytest.approx(1 / 3)


def test_a_category_is_lost_if_another_one_or_null_is_published() -> None:
    stream = stream_of(shop=({"scale": "nominal"}, ["x", "y", None, "x"]))
    released = [(n, {"shop": shop}) for n, shop in enumerate(["x", "x", None, None])]
    assert losses_of(stream, released).total == {"shop": 0.5}


@pytest.mark.parametrize(
    ("published", "height"),
    [("a", 0.0), ("coast", 1 / 3), ("b", 1 / 3), ("north", 2 / 3), ("c", 2 / 3), ("*", 1.0), ("d", 1.0), (None, 1.0)],
)
def test_a_leaf_loses_the_height_of_what_is_published(published: str | None, height: float) -> None:
    stream = stream_of(area=({"scale": "nominal", "taxonomy": AREAS}, ["a"]))
    assert losses_of(stream, [(0, {"area": published})]).total["area"] == pytest.approx(height)


def test_a_clock_is_measured_against_its_windows() -> None:
    """Six days in windows of three: 17.5 days squared in all, and 2 within each window."""
    days = [f"2026-01-0{day}T00:00:00Z" for day in range(1, 7)]
    stream = stream_of(delta=2, clocks=("at",), at=({"scale": "time"}, days))
    found = losses_of(stream, [(n, {"at": "2026-01-02" if n < 3 else "2026-01-05"}) for n in range(6)])
    assert found.total["at"] == pytest.approx(4 / 17.5)
    assert found.trend["at"] == pytest.approx(1.0)
    assert found.mean == pytest.approx(4 / 17.5)
    assert found.mean_after_trend == pytest.approx(1.0)


def test_a_year_or_a_month_is_its_first_day() -> None:
    stream = stream_of(born=({"scale": "time"}, ["1970-01-01T00:00:00Z", "1971-01-01T00:00:00Z"]))
    assert losses_of(stream, [(0, {"born": "1970"}), (1, {"born": "1971-01"})]).mean == 0.0


def test_the_geometric_mean_of_a_half_and_two_is_one() -> None:
    assert geometric([0.5, 2.0]) == pytest.approx(1.0)


def test_bounds_are_made_wider_at_their_upper_end() -> None:
    stream = next(mixed_streams())
    tight, wide = (stream.policy(wider).quasi_identifiers for wider in (1.0, 10.0))
    for narrow, broad in zip(tight, wide, strict=True):
        if narrow.bounds and broad.bounds:
            assert broad.bounds[0] == narrow.bounds[0]
            assert broad.bounds[1] - broad.bounds[0] == pytest.approx(10 * (narrow.bounds[1] - narrow.bounds[0]))


def test_at_least_twelve_streams_have_attributes_of_several_scales() -> None:
    streams = [*mixed_streams(), *unseen_streams()]
    assert len(streams) == 20
    assert len({stream.name for stream in streams}) == 20
    for stream in streams:
        assert len({declared["scale"] for declared in stream.attributes.values()}) >= 2


def test_every_record_is_released_once_by_the_engine_and_by_tables() -> None:
    stream = next(mixed_streams())
    short = MixedStream(stream.name, stream.attributes, {name: column[:650] for name, column in stream.columns.items()})
    for released in (by_pipe(short, short.policy()), by_tables(short)):
        assert sorted(number for number, _ in released) == list(range(650))
        assert 0.1 < losses_of(short, released).mean < 0.5


def test_the_engine_is_as_it_was_after_a_candidate_was_tried() -> None:
    candidate = next(one for one in CANDIDATES if one.name == "a clock counts 0.25")
    stream = next(mixed_streams())
    with scaled_by(candidate, candidate.kind(stream, stream.policy())):
        assert spreads.CLOCK_WEIGHT == 0.25
    assert spreads.CLOCK_WEIGHT == 0.7
