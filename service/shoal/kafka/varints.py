"""Variable-length integers (LEB128) and gaps between offsets, of which offset metadata consist.

A varint may be longer than needed: groups of zero bits at its end change nothing. Their number is called the padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["VarintReader", "from_gaps", "gaps", "unzigzag", "varint", "varints", "zigzag"]


class VarintReader:
    """Reads varints and raw bytes one after the other."""

    def __init__(self, body: bytes, index: int) -> None:
        self.body, self.index = body, index
        self.padding = 0
        """Padding of the varint that was read last."""

    def take(self) -> int:
        """Read a varint.

        Raises
        ------
        IndexError
            The bytes end before it.
        """
        number, start = 0, self.index
        while True:
            byte = self.body[self.index]
            number |= (byte & 127) << 7 * (self.index - start)
            self.index += 1
            if byte < 128:  # noqa: PLR2004 - the top bit says that more follow
                self.padding = self.index - start - max(1, -(-number.bit_length() // 7))
                return number

    def take_bytes(self, count: int) -> bytes:
        """Read so many bytes.

        Raises
        ------
        ValueError
            There are fewer.
        """
        self.index += count
        if self.index > len(self.body):
            raise ValueError
        return self.body[self.index - count : self.index]


def varints(packed: bytes) -> Iterator[int]:
    """Yield all varints."""
    reader = VarintReader(packed, 0)
    while reader.index < len(packed):
        yield reader.take()


def varint(number: int, padding: int = 0) -> bytes:
    """Return a number of at least 0 as a varint."""
    count = max(1, -(-number.bit_length() // 7)) + padding
    groups = [number >> 7 * index & 127 for index in range(count)]
    return bytes([*(group | 128 for group in groups[:-1]), groups[-1]])


def gaps(offsets: Iterable[int], start: int) -> Iterator[int]:
    """Yield the distance of each offset from the one before; that of the first from ``start``."""
    for offset in offsets:
        yield offset - start
        start = offset


def from_gaps(distances: Iterable[int], start: int) -> Iterator[int]:
    """Yield the offsets of which `gaps` yielded the distances."""
    for distance in distances:
        start += distance
        yield start


def zigzag(number: int) -> int:
    """Return a number of at least 0 for any number: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return 2 * number if number >= 0 else -2 * number - 1


def unzigzag(number: int) -> int:
    """Return the number of which `zigzag` returned this one."""
    return number // 2 if number % 2 == 0 else -(number + 1) // 2
