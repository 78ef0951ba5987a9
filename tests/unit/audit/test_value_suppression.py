"""Suppressions that a limit of confidential values may explain, and those that it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from shoal.audit.originals import Originals
from shoal.audit.unpublished import BreakableValues
from support.making import SUBJECT, policy_of, quasi, unchanged_field

pytestmark = pytest.mark.unit


def can_be_broken(privacy: dict[str, Any], values: str, people: str | None = None) -> bool:
    """Whether records with these values, one letter each, may form a cluster of k subjects that exceeds a limit."""
    policy = policy_of(
        {"who": SUBJECT, "age": quasi(0, 110), "ill": unchanged_field("string")}, privacy={"k": 3, **privacy}
    )
    n = np.arange(len(values))
    subjects = n if people is None else np.array([ord(one) for one in people])
    unchanged: list[str | None] = [f'"{value}"' for value in values]
    originals = Originals(np.zeros((len(n), 1)), subjects, unchanged, n * 0, n, is_export=False)
    return BreakableValues(policy, originals).can_be_broken(n.tolist())


@pytest.mark.parametrize(
    ("privacy", "values", "found"),
    [
        ({"l": 2, "max_value_share": 1}, "abcd", False),
        ({"l": 2, "max_value_share": 1}, "aabbcc", False),  # two of one value are not yet three people
        ({"l": 2, "max_value_share": 1}, "aaab", True),
        ({"l": 3, "max_value_share": 1}, "aabb", True),
        ({"l": 3, "max_value_share": 1}, "abcde", False),
        ({"l": 2}, "abcd", False),
        ({"l": 2}, "aabcd", True),  # two of three records have one value
        ({"max_value_share": 0.7}, "aabcd", False),
        ({"t": 0.9}, "abcd", True),
        ({"l": {"entropy": 2}}, "abcd", True),
        ({"l": {"recursive": [1, 2]}}, "abcd", True),
        ({}, "aaaa", False),
    ],
)
def test_a_suppression_is_possible_if_some_cluster_exceeds_a_limit(
    privacy: dict[str, Any],
    values: str,
    found: bool,  # noqa: FBT001
) -> None:
    assert can_be_broken(privacy, values) is found


def test_records_of_one_person_count_once_towards_k() -> None:
    assert not can_be_broken({"l": 2, "max_value_share": 1}, "aaaab", "xxxyz")
    assert can_be_broken({"l": 2, "max_value_share": 1}, "aaaab", "xxwyz")
    assert can_be_broken({"max_value_share": 0.5}, "aaabc", "xxxyz")
