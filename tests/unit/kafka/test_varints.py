"""Variable-length integers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.kafka.metadata import VarintReader, unzigzag, varint, varints, zigzag

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("number", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02")])
def test_a_number_has_these_bytes(number: int, encoded: str) -> None:
    assert varint(number).hex() == encoded


@given(st.lists(st.integers(0, 2**64)))
def test_numbers_are_read_as_written(written: list[int]) -> None:
    packed = b"".join(map(varint, written))
    reader = VarintReader(packed)
    assert [reader.take() for _ in written] == list(varints(packed)) == written
    assert reader.rest() == b""


@given(st.integers(-(2**63), 2**63))
def test_a_number_of_either_sign_is_restored(number: int) -> None:
    assert zigzag(number) >= 0
    assert unzigzag(zigzag(number)) == number
