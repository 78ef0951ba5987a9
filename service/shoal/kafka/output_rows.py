"""Where the rows of one commit are in the output: a start recognizes by it that records were published later.

Offsets show that whatever the clocks of workers and brokers say. The numbers are part of the offset metadata.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Self

__all__ = ["OutputRows"]

_COUNT_BITS, _NAME_BITS = 20, 32


@dataclass(frozen=True, slots=True)
class OutputRows:
    """The rows of the transaction of a commit.

    Attributes
    ----------
    first_offset : int
        All of them are at this offset of the output or after it. Before it are rows of earlier commits alone.
    count : int
        Number of rows; 0 for a commit that publishes none.
    name_checksum : int
        CRC-32 of the name of the output: these offsets mean nothing in another topic.
    """

    first_offset: int
    count: int
    name_checksum: int

    @classmethod
    def of(cls, output: str, first_offset: int, count: int) -> Self:
        """Return the rows of a commit in this output."""
        return cls(first_offset, count, zlib.crc32(output.encode()))

    def are_in(self, output: str) -> bool:
        """Return whether they are in the topic of this name."""
        return self.name_checksum == zlib.crc32(output.encode())

    def to_number(self) -> int | None:
        """Return them as a number of at least 0; None if there are too many rows (a million)."""
        if self.count >= 1 << _COUNT_BITS:
            return None
        return (self.first_offset << _COUNT_BITS | self.count) << _NAME_BITS | self.name_checksum

    @classmethod
    def from_number(cls, number: int) -> Self:
        """Return the rows for which `to_number` returned this number."""
        rows, name_checksum = number >> _NAME_BITS, number & (1 << _NAME_BITS) - 1
        return cls(rows >> _COUNT_BITS, rows & (1 << _COUNT_BITS) - 1, name_checksum)
