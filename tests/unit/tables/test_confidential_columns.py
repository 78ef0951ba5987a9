"""Confidential attributes of a table as numbers: what is missing, and what is a category."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from shoal.policy import Attribute, Role
from shoal.tables.table import ConfidentialColumn

pytestmark = pytest.mark.unit


def column_of(kind: Any, values: list[Any], missing_values: tuple[str, ...]) -> ConfidentialColumn:
    column = ConfidentialColumn.of(Attribute("pay", Role.CONFIDENTIAL, type=kind), missing_values)
    column.add(values[:2])
    column.add(values[2:])
    return column


@pytest.mark.parametrize("kind", ["any", "number", "integer"])
@pytest.mark.parametrize("seven", [7, "7", 7.0])
def test_a_number_that_the_policy_lists_is_missing(kind: str, seven: Any) -> None:
    numbers = column_of(kind, [1, seven, 70, None], ("", "7")).numbers()
    assert numbers is not None
    assert np.array_equal(numbers, [1, np.nan, 70, np.nan], equal_nan=True)


def test_a_text_that_the_policy_lists_makes_no_category_of_a_number() -> None:
    assert column_of("any", [1, "?", 70, 2], ("", "?")).numbers() is not None
    assert column_of("any", [1, "?", 70, 2], ("",)).numbers() is None


def test_missing_values_of_a_category_are_one_bin() -> None:
    column = column_of("string", ["a", "?", None, "b"], ("", "?"))
    assert column.numbers() is None
    bins = column.bins(np.ones(4, np.bool_)).bins
    assert (bins[1] == bins[2], len(set(bins.tolist()))) == (True, 3)
