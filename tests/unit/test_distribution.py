"""Tests that wait for a broker are spread over the others."""

from __future__ import annotations

import pytest
from support.distribution import mixed

pytestmark = pytest.mark.unit


def test_tests_that_wait_are_spread_over_the_first_of_the_others_in_their_order() -> None:
    assert mixed("ABC", "abcdefghij") == list("abAcdBefCghij")


@pytest.mark.parametrize(("waiting", "others"), [("", "abc"), ("ABC", ""), ("", "")])
def test_one_kind_alone_keeps_its_order(waiting: str, others: str) -> None:
    assert mixed(waiting, others) == [*waiting, *others]
