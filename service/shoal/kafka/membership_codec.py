"""Which of some offsets are together in a cluster, in as few bytes as make sense: one bit, and a digit.

The bit tells whether an offset is in a cluster at all. The digits of those that are, numbers of clusters in the order
of their first member, are the digits of one large number whose base is how many clusters there are: a thousand
records in clusters of ten then take 6.6 bits each, not 7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["decode_membership", "encode_membership", "max_membership_bytes"]

_COUNT_BYTES = 2


def max_membership_bytes(listed: int, members: int, smallest: int) -> int:
    """Return the most bytes that `encode_membership` needs for some offsets, ``members`` of them in clusters.

    No cluster has fewer than ``smallest`` members.
    """
    return _COUNT_BYTES + listed // 8 + 1 + _digit_bytes(members, max(1, members // smallest))


def encode_membership(alone: Sequence[int], clusters: Sequence[Sequence[int]]) -> bytes:
    """Write who is with whom.

    Parameters
    ----------
    alone : sequence of int
        Offsets in no cluster.
    clusters : sequence of sequence of int
        By their first offset; ascending in each; one at least.
    """
    label_of = {offset: number for number, members in enumerate(clusters) for offset in members}
    listed = sorted((*alone, *label_of))
    bits = bytearray(len(listed) // 8 + 1)
    for place, offset in enumerate(listed):
        if offset in label_of:
            bits[place >> 3] |= 1 << (place & 7)
    number = 0
    for offset in sorted(label_of, reverse=True):
        number = number * len(clusters) + label_of[offset]
    size = _digit_bytes(len(label_of), len(clusters))
    return len(clusters).to_bytes(_COUNT_BYTES, "big") + bytes(bits) + number.to_bytes(size, "big")


def decode_membership(packed: bytes, listed: Sequence[int]) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Read back what `encode_membership` wrote of these offsets: those in no cluster, and the clusters.

    Raises
    ------
    ValueError
        It is nothing of the kind.
    """
    count, bits = int.from_bytes(packed[:_COUNT_BYTES], "big"), packed[_COUNT_BYTES:][: len(listed) // 8 + 1]
    members = [offset for place, offset in enumerate(listed) if bits[place >> 3] >> (place & 7) & 1]
    rest = packed[_COUNT_BYTES + len(bits) :]
    if count == 0 or len(rest) != _digit_bytes(len(members), count):
        raise ValueError
    number, clusters = int.from_bytes(rest, "big"), [list[int]() for _ in range(count)]
    for offset in members:
        number, label = divmod(number, count)
        clusters[label].append(offset)
    found = tuple(map(tuple, clusters))
    if number or not all(found) or list(found) != sorted(found):
        raise ValueError
    together = set(members)
    return tuple(offset for offset in listed if offset not in together), found


def _digit_bytes(members: int, clusters: int) -> int:
    # A little more than the logarithm says, whatever the last bit of a float is.
    return math.ceil(members * math.log2(clusters) / 8 * (1 + 1e-12)) + 1
