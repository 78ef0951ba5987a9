"""The losses of mixed streams, computed from what is published, by hand-made releases."""

from __future__ import annotations

from typing import Any

import pytest
from balance import losses_of
from mixed_streams import MixedStream

pytestmark = pytest.mark.unit

AREAS = {"north": {"coast": ["a", "b"], "hills": ["c"]}, "south": {"plain": ["d"]}}


def stream_of(
    delta: int = 200, clocks: tuple[str, ...] = (), **columns: tuple[dict[str, Any], list[Any]]
) -> MixedStream:
    attributes = {name: declared for name, (declared, _) in columns.items()}
    return MixedStream(
        "made by hand", attributes, {name: column for name, (_, column) in columns.items()}, 2, delta, clocks
    )


@pytest.mark.parametrize(
    ("declared", "values", "published", "loss"),
    [
        ({"scale": "numeric"}, [10, 20, 30, 40], [15, 15, 35, 35], 0.2),
        ({"scale": "numeric"}, [10, 20, None, 30], [10, 20, 25, None], 0.0),  # missing numbers do not count
        ({"scale": "ordinal", "order": ["low", "mid", "high"]}, ["low", "high", "mid"], ["mid"] * 3, 1 / 3),
        ({"scale": "nominal"}, ["x", "y", None, "x"], ["x", "x", None, None], 0.5),
        ({"scale": "time"}, ["1970-01-01T00:00:00Z", "1971-01-01T00:00:00Z"], ["1970", "1971-01"], 0.0),  # first days
    ],
)
def test_the_loss_of_an_attribute_is_that_of_its_scale(
    declared: dict[str, Any], values: list[Any], published: list[Any], loss: float
) -> None:
    found = losses_of(stream_of(x=(declared, values)), [(n, {"x": value}) for n, value in enumerate(published)])
    assert found.total == {"x": pytest.approx(loss)} if loss else found.mean == 0.0


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
