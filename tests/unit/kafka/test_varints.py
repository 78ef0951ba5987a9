"""Variable-length integers, with and without padding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.kafka.metadata import VarintReader, unzigzag, varint, varints, zigzag

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("number", "padding", "encoded"),
    [
        (0, 0, "00"),
        (0, 2, "808000"),
        (127, 0, "7f"),
        (127, 1, "ff00"),
        (128, 0, "8001"),
        (300, 0, "ac02"),
        (300, 2, "ac828000"),
    ],
)
def test_a_number_has_these_bytes(number: int, padding: int, encoded: str) -> None:
    assert varint(number, padding).hex() == encoded


@given(st.lists(st.tuples(st.integers(0, 2**64), st.integers(0, 2))))
def test_numbers_and_paddings_are_read_as_written(written: list[tuple[int, int]]) -> None:
    packed = b"".join(varint(number, padding) for number, padding in written)
    reader = VarintReader(packed, 0)
    assert [(reader.take(), reader.padding) for _ in written] == written
    assert list(varints(packed)) == [number for number, _ in written]


@given(st.integers(-(2**63), 2**63))
def test_a_number_of_either_sign_is_restored(number: int) -> None:
    assert zigzag(number) >= 0
    assert unzigzag(zigzag(number)) == number
