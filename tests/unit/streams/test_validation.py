"""Validation of blocks: every invalid array is named, and no value is shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from shoal.errors import ParameterError
from shoal.streams.clusterer import InputValidator
from shoal.streams.held_records import Buffer

pytestmark = pytest.mark.unit


VALID: dict[str, Any] = {
    "coordinates": np.zeros((2, 3)),
    "subjects": np.array([1, 2]),
    "positions": np.array([4, 6]),
    "expiry_keys": np.array([[5], [5]]),
}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"coordinates": np.zeros((2, 2))}, r"coordinates: must be an array of float64, shape \(n, 3\)"),
        ({"coordinates": np.zeros((2, 3), np.float32)}, "coordinates"),
        ({"coordinates": [[0.0, 0.0, 0.0]]}, "coordinates"),
        ({"coordinates": np.full((2, 3), np.nan)}, "coordinates: must be finite"),
        ({"coordinates": np.full((2, 3), -np.inf)}, "coordinates: must be finite"),
        ({"subjects": np.array([1])}, r"subjects: must be an array of int64, shape \(2,\)"),
        ({"subjects": np.array(["a", "b"])}, "subjects"),
        ({"subjects": None}, "subjects: given in some blocks"),
        ({"positions": np.array([6, 6])}, "positions: must ascend"),
        ({"positions": np.array([3, 4])}, "positions: must ascend"),
        ({"positions": np.array([4, 2**62])}, "positions: must ascend"),
        ({"positions": np.array([[4, 5]])}, "positions"),
        ({"expiry_keys": None}, "expiry_keys: missing"),
        ({"expiry_keys": np.array([[5], [4]])}, "expiry_keys: must not decrease"),
        ({"expiry_keys": np.array([[4], [5]])}, "expiry_keys: must not decrease"),
        ({"expiry_keys": np.array([[5], [2**62]])}, "expiry_keys: must not decrease"),
        ({"expiry_keys": np.zeros((2, 2), np.int64)}, "expiry_keys"),
    ],
)
def test_an_invalid_array_is_named_without_its_values(changed: dict[str, Any], message: str) -> None:
    validator = InputValidator(3, 1)
    first = validator.validate(np.zeros((1, 3)), np.array([1]), np.array([3]), np.array([[5]]))
    validator.remember(first, by_subject=True)
    with pytest.raises(ParameterError, match=message):
        validator.validate(**{**VALID, **changed})
    assert validator.last == 3
    assert validator.validate(**VALID).positions.tolist() == [4, 6]


def test_arrays_of_any_memory_layout_are_valid() -> None:
    validator = InputValidator(3, 1)
    frozen = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    frozen.setflags(write=False)
    checked = validator.validate(frozen, VALID["subjects"], VALID["positions"], VALID["expiry_keys"])
    buffer = Buffer(5, 3, 1)
    buffer.stage(checked, 0)
    assert buffer.held.coordinates[:, :2].T.tolist() == frozen.tolist()


def test_an_empty_block_is_valid_and_changes_nothing() -> None:
    validator = InputValidator(3, 0)
    empty = validator.validate(np.zeros((0, 3)), None, None, None)
    validator.remember(empty, by_subject=False)
    assert validator.last == -1
    assert validator.validate(np.zeros((1, 3)), np.array([5]), None, None).positions.tolist() == [0]


def test_omitted_positions_continue_from_the_last_and_serve_as_subjects() -> None:
    validator = InputValidator(1, 0)
    validator.remember(validator.validate(np.zeros((1, 1)), None, np.array([7]), None), by_subject=False)
    checked = validator.validate(np.zeros((2, 1)), None, None, None)
    assert checked.positions.tolist() == checked.subjects.tolist() == [8, 9]
    assert checked.expiry_keys.shape == (2, 0)
