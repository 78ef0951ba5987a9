"""References of confidential values from samples."""

from __future__ import annotations

import pytest
from shoal.errors import InputError
from support.reference_samples import policy_of, smooth

pytestmark = pytest.mark.unit


def rows(found: object) -> list[tuple[str | None, int]]:
    return [(row.text, row.units) for row in found.rows]  # type: ignore[attr-defined]


def test_counts_are_rounded_to_multiples_of_k_and_rare_values_are_left_out() -> None:
    values = ["flu"] * 52 + ["cold"] * 33 + ["mumps"] * 14 + ["canary"] * 9
    found = smooth(policy_of(10, type="string"), enumerate(values))
    assert [(row.text, row.subjects, row.units) for row in found.rows] == [
        ("cold", 30, 3333),
        ("flu", 50, 5556),
        ("mumps", 10, 1111),
    ]
    assert (found.left_out, found.unusable) == (1, 0)


def test_spellings_of_a_number_are_one_value() -> None:
    values = [1, 1.0, "1", "1.0 "] + [2] * 4
    found = smooth(policy_of(2, scale="nominal"), enumerate(values))
    assert rows(found) == [("1", 5000), ("2", 5000)]


def test_categories_with_an_order_are_written_in_it_and_others_are_not_counted() -> None:
    policy = policy_of(2, scale="ordinal", order=["low", "mid", "high"])
    found = smooth(policy, enumerate(["high"] * 4 + ["low"] * 4 + ["canary"] * 4))
    assert rows(found) == [("low", 5000), ("high", 5000)]
    assert found.unusable == 4


def test_numbers_are_cut_into_bins_of_twice_k_subjects() -> None:
    found = smooth(policy_of(5, type="number"), enumerate(range(1000, 1040)))
    assert [(row.text, row.subjects) for row in found.rows] == [("1005", 10), ("1015", 10), ("1025", 10), ("1035", 10)]


def test_numbers_that_many_subjects_share_stay_exact() -> None:
    values = [0] * 900 + [1234567] * 100
    assert rows(smooth(policy_of(10, type="integer"), enumerate(values))) == [("0", 9000), ("1234567", 1000)]


def test_bins_have_a_hundredth_of_the_subjects() -> None:
    found = smooth(policy_of(2, type="number"), enumerate(range(5000)))
    assert len(found.rows) == 100


def test_numbers_beyond_float64_and_texts_are_not_counted() -> None:
    values = [*range(20), "1e999", "high", True, "1e-999"]
    found = smooth(policy_of(2, scale="numeric"), enumerate(values))
    assert found.unusable == 4


@pytest.mark.parametrize(("values", "is_numeric"), [([1, "2", None] * 8, True), ([1, "2", "x"] * 8, False)])
def test_values_of_type_any_are_numbers_if_all_are(values: list[object], is_numeric: bool) -> None:  # noqa: FBT001
    found = smooth(policy_of(2), enumerate(values))
    assert [row.text for row in found.rows] == ([None, "1", "2"] if is_numeric else ["1", "2", "x"])


def test_a_sample_with_fewer_than_two_values_is_refused() -> None:
    for values in ([], ["a"] * 9, ["a"] * 9 + ["b"]):
        with pytest.raises(InputError, match=r"attributes\.value: fewer than two values have 2 subjects"):
            smooth(policy_of(2, type="string"), enumerate(values))
