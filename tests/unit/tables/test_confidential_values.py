"""`microaggregate` with confidential values: parameters, and clusters against plain definitions."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from shoal import microaggregate
from shoal.arrays import Int32Vector
from shoal.errors import ParameterError
from support.diversity_by_definition import entropy_of, is_recursive, value_share

pytestmark = pytest.mark.unit

DRAW = np.random.default_rng(2)
VALUES = DRAW.random((90, 2))
WORDS = [["flu", "cold", " flu ", None, "ulcer"][min(int(5 * x + y), 4)] for x, y in VALUES.tolist()]
PAYS: list[Any] = [[1, 1.0, "1", 2.5, 4][min(int(5 * y), 4)] for _, y in VALUES.tolist()]


def key(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def columns_of(labels: Int32Vector, values: list[Any]) -> list[list[Any]]:
    return [[key(values[i]) for i in np.flatnonzero(labels == label)] for label in range(int(labels.max()) + 1)]


@pytest.mark.parametrize("l", [3, {"distinct": 3}, {"entropy": 2.2}, {"recursive": [2, 3]}])
def test_every_cluster_is_l_diverse(l: Any) -> None:  # noqa: E741
    labels = microaggregate(VALUES, 4, "auto", confidential=np.array(WORDS, object), l=l)
    assert labels.max() > 2
    for column in columns_of(labels, WORDS):
        if isinstance(l, dict) and "entropy" in l:
            assert entropy_of(column) >= math.log(2.2) - 1e-9
        elif isinstance(l, dict) and "recursive" in l:
            assert is_recursive(column, 2, 3)
        else:
            assert len(set(column)) >= 3
            assert value_share(column) <= 0.5


def test_spellings_of_a_number_are_one_value() -> None:
    labels = microaggregate(VALUES, 4, confidential=np.array(PAYS, object), l=3, max_value_share=1)
    for column in columns_of(labels, PAYS):
        assert len(set(map(float, column))) == 3


def test_several_attributes_keep_the_largest_share() -> None:
    both = np.array(list(zip(WORDS, PAYS, strict=True)), object)
    labels = microaggregate(VALUES, 4, confidential=both, max_value_share=0.7)
    for values in (WORDS, PAYS):
        for column in columns_of(labels, values):
            assert value_share([float(x) if values is PAYS else x for x in column]) <= 0.7 + 1e-9


@pytest.mark.parametrize("reference", [None, {1: 0.5, 2.5: 0.25, 4: 0.25}])
def test_every_cluster_is_t_close(reference: dict[Any, float] | None) -> None:
    labels = microaggregate(VALUES, 4, "auto", confidential=np.array(PAYS, object), t=0.3, reference=reference)
    assert labels.max() > 3
    pays = [float(pay) for pay in PAYS]
    whole = reference or {pay: count / 90 for pay, count in Counter(pays).items()}
    for column in columns_of(labels, pays):
        gaps = [column.count(pay) / len(column) - whole[pay] for pay in sorted(whole)]
        assert sum(abs(sum(gaps[: i + 1])) for i in range(3)) / 2 <= 0.3 + 1e-9


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"l": 3}, "confidential: missing"),
        ({"t": 0.3}, "confidential: missing"),
        ({"confidential": WORDS, "l": 1}, "l: must be a whole number"),
        ({"confidential": WORDS, "l": {"entropy": 1}}, "l: must be"),
        ({"confidential": WORDS, "max_value_share": 0}, "max_value_share: must be above 0"),
        ({"confidential": WORDS, "t": -1}, "t: must be above 0"),
        ({"confidential": WORDS[1:], "l": 2}, r"confidential: must have shape \(90,\)"),
        ({"confidential": WORDS, "t": 0.3, "reference": {"flu": 0.4, "cold": 0.3}}, "reference: shares must sum to 1"),
        ({"confidential": WORDS, "t": 0.3, "reference": [{1: 0.5, 2: 0.5}] * 2}, "confidential: must have 2 columns"),
        ({"confidential": WORDS, "t": 0.3, "reference": {1: 0.5, 2: 0.5}}, "confidential: must be numbers"),
        ({"confidential": WORDS, "l": 2, "constraints": None}, "constraints: must be ClusterConstraints"),
    ],
)
def test_faults_are_named(given: dict[str, Any], message: str) -> None:
    if "confidential" in given:
        given = given | {"confidential": np.array(given["confidential"], object)}
    with pytest.raises(ParameterError, match=message):
        microaggregate(VALUES, 4, **given)
