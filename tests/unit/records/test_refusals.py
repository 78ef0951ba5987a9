"""Counts of refused records by reason and field."""

from __future__ import annotations

import pytest
from shoal.records import RefusalCounter, is_notable
from shoal.records import refusals as module

pytestmark = pytest.mark.unit


def test_kinds_are_counted_and_the_most_frequent_comes_first() -> None:
    counter = RefusalCounter()
    for description in (": not JSON", ", field age: null", ", column 3 (age): null", ": 7 cells, but the header has 2"):
        counter.add("invalid", lambda text=description: text)  # type: ignore[misc]
    counter.add("too_large", str)
    assert counter.total == 5
    assert counter.texts(7874) == [
        "2 of 7,874 invalid: age: null",
        "1 of 7,874 invalid: not JSON",
        "1 of 7,874 invalid: another number of cells, but the header has 2",
        "1 of 7,874 too_large",
    ]


def test_a_field_may_have_any_name() -> None:
    counter = RefusalCounter()
    counter.add("invalid", lambda: ", column 1 (a): (b): empty")
    assert counter.texts(1) == ["1 of 1 invalid: a): (b: empty"]


def test_only_the_first_records_are_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DESCRIBED", 2)
    counter, asked = RefusalCounter(), []

    def describe() -> str:
        asked.append(1)
        return ", field age: null"

    for _ in range(1500):
        counter.add("invalid", describe)
    assert len(asked) == 2
    assert counter.texts(1500) == ["1,498 of 1,500 invalid", "2 of 1,500 invalid: age: null"]


def test_many_kinds_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KINDS", 1)
    counter = RefusalCounter()
    for name in "abbc":
        counter.add("invalid", lambda name=name: f", field {name}: null")  # type: ignore[misc]
    assert counter.texts(9) == ["2 of 9 invalid: b: null", "2 of 9 for other reasons"]


@pytest.mark.parametrize(
    ("records_in", "released", "refused", "expected"),
    [(0, 0, 0, False), (100, 99, 1, False), (100, 98, 2, True), (10, 0, 0, True)],
)
def test_an_empty_release_and_more_than_one_refused_record_in_a_hundred_are_notable(
    records_in: int, released: int, refused: int, *, expected: bool
) -> None:
    assert is_notable(records_in, released, refused) is expected
