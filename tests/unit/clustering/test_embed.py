from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pytest
from shoal.clustering import embedding as embed
from shoal.clustering.embedding import Embedding, PublicationGrid, exact_means
from shoal.errors import ParameterError
from shoal.policy.resolved import Policy
from shoal.policy.schema import Document

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
    embedding = Embedding.of(policy([-1.0, 1.0]))
    values = np.array([[-1.0, 0.0], [0.0, 1.0], [1.0, 4.0]])
    assert embedding.coordinates(values).tolist() == [[0.0, 0.0], [0.5, 0.75], [1.0, 3.0]]


def test_what_is_published_lies_on_the_grid_of_the_policy() -> None:
    embedding = Embedding.of(policy([0.0, 100.0], integer=True))
    texts, values = embedding.published(np.array([[1.0, 1.0], [2.0, 1.0]]), np.array([0, 2]))
    assert texts == [["2", "1.00"]]
    assert values.tolist() == [[2.0, 1.0]]


def test_without_bounds_a_stream_cannot_be_embedded() -> None:
    with pytest.raises(ParameterError, match="bounds: missing for a"):
        Embedding.of(policy(None))


@pytest.mark.parametrize(
    ("resolution", "members", "text"),
    [
        ("0.05", [1.6], "1.60"),
        ("500", [41400.0, 41500.0], "41500"),
        ("1", [42.0], "42"),
        ("1", [0.5], "0"),
        ("1", [1.5], "2"),
        ("1", [2.5], "2"),
        ("1", [-0.5], "0"),
        ("1", [-2.5], "-2"),
        ("0.1", [-0.04], "0.0"),
        ("0.25", [-0.3], "-0.25"),
        ("1E+3", [1499.0], "1000"),
        ("0.50", [1.2], "1.00"),
        ("1", [1e300, -1e300, 3.0], "1"),
        ("1", [2.0**53, 1.0, 1.0], "3002399751580331"),
        ("1", [1e22], "10000000000000000000000"),
        ("0", [42.5], "42.5"),
        ("0", [1e22], "1e+22"),
        ("0", [-0.0], "0.0"),
        ("0", [0.1, 0.2, 0.3], "0.19999999999999998"),
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


def test_means_are_in_doubt_near_a_tie_only_and_then_exact() -> None:
    # The mean of the floats 0.05 and 0.15 is not 0.1, but a little below: 0.1 / 0.2 is no tie.
    low, high = 0.05, 0.15
    texts, _ = PublicationGrid([Decimal("0.2")]).published(np.array([[low], [high]]), np.array([0, 2]))
    assert texts == [["0.0"]]


def test_no_clusters() -> None:
    texts, values = PublicationGrid([Decimal(1), Decimal(0)]).published(np.zeros((0, 2)), np.zeros(1, np.int64))
    assert texts == []
    assert values.shape == exact_means(np.zeros((0, 2)), np.zeros(1, np.int64)).shape == (0, 2)


def test_values_of_any_layout_are_read_and_left_alone() -> None:
    values = np.asfortranarray(np.arange(8.0).reshape(4, 2))
    values.setflags(write=False)
    assert exact_means(values, np.array([0, 2, 4])).tolist() == [[1.0, 2.0], [5.0, 6.0]]


@pytest.mark.parametrize("resolution", ["-1", "1e-301", "1e301", "Infinity"])
def test_a_resolution_is_a_step_a_float_can_take(resolution: str) -> None:
    with pytest.raises(ParameterError, match="resolution"):
        PublicationGrid([Decimal(resolution)])


def test_texts_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed, "REMEMBERED", 3)
    grid = PublicationGrid([Decimal("0.5")])
    for start in range(0, 40, 2):
        texts, _ = grid.published(np.array([[start], [start + 1.0]]), np.array([0, 1, 2]))
        assert texts == [[f"{start}.0"], [f"{start + 1}.0"]]
    (step,) = grid._steps
    assert step is not None
    assert len(step._written) <= 3 + 2
