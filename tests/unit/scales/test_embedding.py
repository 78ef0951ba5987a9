"""Coordinates and published values."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pytest
from shoal.errors import ParameterError
from shoal.policy.policy import Policy
from shoal.policy.schema import Document
from shoal.scales import Embedding, PublicationGrid, Scaling, exact_means, numeric

pytestmark = pytest.mark.unit


def policy(bounds: list[float] | None, **settings: object) -> Policy:
    attribute = {"role": "quasi_identifier", **({} if bounds is None else {"bounds": bounds}), **settings}
    content = {
        "attributes": {"a": attribute, "b": {"role": "quasi_identifier", "bounds": [0.0, 4.0], "weight": 3.0}},
        "subject": "every_record",
        "privacy": {"k": 2},
    }
    if bounds is not None:
        content["stream"] = {"delta": 5}
    return Policy.from_document(Document.model_validate(content))


def test_coordinates_are_scaled_by_the_bounds_and_weighted() -> None:
    embedded = Embedding.of(policy([-1.0, 1.0]))
    values = np.array([[-1.0, 0.0], [0.0, 1.0], [1.0, 4.0]])
    assert embedded.coordinates(values).tolist() == [[0.0, 0.0], [0.5, 0.75], [1.0, 3.0]]


def test_without_bounds_a_stream_cannot_be_embedded() -> None:
    with pytest.raises(ParameterError, match="bounds: missing for a"):
        Embedding.of(policy(None))


def test_an_embedding_that_is_rescaled_is_the_one_of_the_other_scaling() -> None:
    nominal = {"role": "quasi_identifier", "scale": "nominal"}
    attributes = {
        "a": {"role": "quasi_identifier", "missing": "group", "weight": 3.0, "integer": True},
        "b": nominal,
        "d": {"role": "quasi_identifier", "bounds": [1.0, 5.0]},
        "s": {"role": "steering", "bounds": [0.0, 4.0]},
    }
    content = {"attributes": attributes, "subject": "every_record", "privacy": {"k": 2}, "stream": {"delta": 5}}
    content |= {"steering": {"by": [{"attribute": "s", "weight": 2.0}]}}
    of = Policy.from_document(Document.model_validate(content))
    first, second = (Scaling(np.array(widths), np.array([7.0, 0.0])) for widths in ([1.0, 2.0], [3.0, 0.1]))
    values = np.array([[np.nan, 0.0, 1.0, 1.0], [10.0, 1.0, 3.0, 2.0]])
    found, expected = Embedding.of(of, first), Embedding.of(of, second)
    found.rescale(second)
    assert found.coordinates(values).tobytes() == expected.coordinates(values).tobytes()
    assert found.coordinates(values).tolist() == [[7.0, 0.0, 0.5], [10.0, 20.0, 1.0]]
    assert found.unit.tolist() == [3.0, 1.0, 4.0]
    assert (found.unit.tolist(), found.ranges) == (expected.unit.tolist(), expected.ranges)
    assert found.code_distances.tolist() == expected.code_distances.tolist()
    found.rescale(first)
    assert found.coordinates(values).tobytes() == Embedding.of(of, first).coordinates(values).tobytes()


@pytest.mark.parametrize(
    ("resolution", "members", "text"),
    [
        ("0.05", [1.6], "1.60"),
        ("500", [41400.0, 41500.0], "41500"),
        ("1", [1.5], "2"),
        ("1", [-0.5], "0"),
        ("1", [-2.5], "-2"),
        ("0.1", [-0.04], "0.0"),
        ("0.1", [0.15], "0.1"),  # the float is below the tie
        ("0.1", [0.45], "0.5"),  # and this one above it
        ("0.2", [0.05, 0.15], "0.0"),  # the mean of the floats is below the tie at 0.1
        ("1E+3", [1499.0], "1000"),
        ("1", [1e300, -1e300, 3.0], "1"),
        ("1", [2.0**53, 1.0, 1.0], "3002399751580331"),
        ("0", [42.5], "42.5"),
        ("0", [-0.0], "0.0"),
        ("0", [0.1, 0.2, 0.3], "0.2"),
        ("0", [5e-324, 5e-324, 0.0], "5e-324"),
        ("0", [1e300, 1.0, 1e-300, -1e300], "0.25"),
        ("0", [1.7e308, 1.7e308], "1.7e+308"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_how_a_mean_is_written(resolution: str, members: list[float], text: str) -> None:
    texts, values = PublicationGrid([Decimal(resolution)]).published(
        np.array(members).reshape(-1, 1), np.array([0, len(members)])
    )
    assert texts == [[text]]
    assert values.tolist() == [[json.loads(text)]]


def test_an_empty_list_of_clusters() -> None:
    texts, values = PublicationGrid([Decimal(1), Decimal(0)]).published(np.zeros((0, 2)), np.zeros(1, np.int64))
    assert texts == []
    assert values.shape == exact_means(np.zeros((0, 2)), np.zeros(1, np.int64)).shape == (0, 2)


def test_the_cache_of_texts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numeric, "CACHED_TEXTS", 3)
    grid = PublicationGrid([Decimal("0.5")])
    for start in range(0, 40, 2):
        texts, _ = grid.published(np.array([[start], [start + 1.0]]), np.array([0, 1, 2]))
        assert texts == [[f"{start}.0"], [f"{start + 1}.0"]]
    (step,) = grid._steps
    assert step is not None
    assert len(step._written) <= 3 + 2
