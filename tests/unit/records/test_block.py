from __future__ import annotations

import numpy as np
import pytest
from shoal.records import Block, Decoder, Reason
from shoal.records.block import in_slices

pytestmark = pytest.mark.unit

SLICE = 512


class Even:
    """Accepts even numbers."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def take(self, messages: list[int] | tuple[int, ...]) -> Block:
        self.lengths.append(len(messages))
        index = np.array([place for place, number in enumerate(messages) if number % 2 == 0], dtype=np.int64)
        values = np.array([[messages[place]] for place in index], dtype=np.float64).reshape(-1, 1)
        rejected = [(place, Reason.INVALID) for place, number in enumerate(messages) if number % 2]
        return Block(values, values[:, 0].astype(np.int64), [b"%d" % messages[p] for p in index], index, rejected, 1)


@pytest.mark.parametrize("n", [0, 1, SLICE, SLICE + 1, 3 * SLICE + 7])
def test_slices_are_put_together_in_order(n: int) -> None:
    even = Even()
    block = in_slices(even.take, list(range(n)))
    evens = list(range(0, n, 2))
    assert max(even.lengths) <= SLICE
    assert block.index.tolist() == block.subjects.tolist() == block.values[:, 0].tolist() == evens
    assert block.tails == [b"%d" % number for number in evens]
    assert block.rejected == [(number, Reason.INVALID) for number in range(1, n, 2)]
    assert block.clipped == len(even.lengths)
    assert len(block) == len(evens)


def test_a_decoder_is_what_takes_messages() -> None:
    decoder: Decoder[list[int]] = Even()  # type: ignore[assignment]
    assert decoder.take([]).values.shape == (0, 1)
