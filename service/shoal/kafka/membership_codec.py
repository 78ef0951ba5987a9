"""Encodes to which cluster each of some offsets belongs: one bit and one digit for each offset.

The bit is set if the offset is in a cluster. Clusters are numbered in the order of their first members; the numbers
of all members are the digits of one large integer, whose base is the number of clusters. So a thousand records in
clusters of ten take 6.6 bits each, not 7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["decode_membership", "encode_membership", "max_membership_bytes"]

_COUNT_BYTES = 2


def max_membership_bytes(listed: int, members: int, smallest: int) -> int:
    """Return the most bytes that `encode_membership` needs for ``listed`` offsets, ``members`` of them in clusters.

    Each cluster has at least ``smallest`` members.
    """
    return _COUNT_BYTES + listed // 8 + 1 + _digit_bytes(members, max(1, members // smallest))


def encode_membership(alone: Sequence[int], clusters: Sequence[Sequence[int]]) -> bytes:
    """Encode which offsets are in which cluster.

    Parameters
    ----------
    alone : sequence of int
        Offsets in no cluster.
    clusters : sequence of sequence of int
        At least one; by their first offset, ascending in each.
    """
    number_of = {offset: number for number, members in enumerate(clusters) for offset in members}
    listed = sorted((*alone, *number_of))
    bits = bytearray(len(listed) // 8 + 1)
    for index, offset in enumerate(listed):
        if offset in number_of:
            bits[index >> 3] |= 1 << (index & 7)
    number = 0
    for offset in sorted(number_of, reverse=True):
        number = number * len(clusters) + number_of[offset]
    size = _digit_bytes(len(number_of), len(clusters))
    return len(clusters).to_bytes(_COUNT_BYTES, "big") + bytes(bits) + number.to_bytes(size, "big")


def decode_membership(packed: bytes, listed: Sequence[int]) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Decode what `encode_membership` returned for these offsets: the offsets in no cluster, and the clusters.

    Raises
    ------
    ValueError
        `encode_membership` did not write these bytes.
    """
    count, bits = int.from_bytes(packed[:_COUNT_BYTES], "big"), packed[_COUNT_BYTES:][: len(listed) // 8 + 1]
    members = [offset for index, offset in enumerate(listed) if bits[index >> 3] >> (index & 7) & 1]
    rest = packed[_COUNT_BYTES + len(bits) :]
    if count == 0 or len(rest) != _digit_bytes(len(members), count):
        raise ValueError
    number, clusters = int.from_bytes(rest, "big"), [list[int]() for _ in range(count)]
    for offset in members:
        number, digit = divmod(number, count)
        clusters[digit].append(offset)
    found = tuple(map(tuple, clusters))
    if number or not all(found) or list(found) != sorted(found):
        raise ValueError
    together = set(members)
    return tuple(offset for offset in listed if offset not in together), found


def _digit_bytes(members: int, clusters: int) -> int:
    # Slightly more than the logarithm, so that rounding of the float does not matter.
    return math.ceil(members * math.log2(clusters) / 8 * (1 + 1e-12)) + 1
