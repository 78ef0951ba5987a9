"""The text that Kafka stores with a committed offset (the offset metadata): an `OffsetState` in at most 4096 bytes.

Layout: ``shoal1:`` and the base64 of

1. version and coding, one byte each;
2. eight varints: counters, stream time, times and offsets, relative to the committed offset; their padding (`varints`)
   is the partition count of the group's first start in base 3, which older workers read over;
3. the first 8 bytes of the policy's fingerprint;
4. the adaptive state (`pipeline.adaptive_state`), in version 3 only; without one it is version 2, which older workers
   read;
5. rejected future timestamps, as gaps between offsets; the last gap, if it is larger than any offset, says where the
   rows of this commit are in the output (`output_rows`), which older workers take for one more offset;
6. the incomplete offsets, as a bitmap or as gaps (varints), whichever is smaller; with ordered release, the
   members of unfinished clusters are listed with them, and their memberships follow (`membership_codec`);
7. a CRC-32, which also covers topic, partition and committed offset, so that metadata copied elsewhere are refused.

No byte depends on a record's content that is not published: only on offsets, broker timestamps, counters, and the
adaptive state. `cipher` encrypts the same bytes. The Parallel Consumer of Confluent encodes incomplete offsets into
the offset metadata in the same way (`OffsetMapCodecManager`).

Encodes to which cluster each of some offsets belongs: one bit and one digit for each offset.

The bit is set if the offset is in a cluster. Clusters are numbered in the order of their first members; the numbers
of all members are the digits of one large integer, whose base is the number of clusters. So a thousand records in
clusters of ten take 6.6 bits each, not 7.

Variable-length integers (LEB128) and gaps between offsets, of which offset metadata consist.

A varint may be longer than needed: groups of zero bits at its end change nothing. Their number is called the padding.

Where the rows of one commit are in the output: a start recognizes by it that records were published later.

Offsets show that whatever the clocks of workers and brokers say. The numbers are part of the offset metadata.
"""

from __future__ import annotations

import base64
import itertools
import math
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from shoal.errors import InputError
from shoal.kafka.offsets import MAX_FUTURE_TIMESTAMPED, OffsetState, ReferenceRecord
from shoal.policy import Policy
from shoal.streams import BLOCK_RECORDS, AdaptiveState, release_strategy

__all__ = [
    "ENCRYPTED_BYTES",
    "LIMIT_BYTES",
    "PREFIX",
    "UNLIMITED",
    "CommittedState",
    "OutputRows",
    "VarintReader",
    "decode",
    "decode_membership",
    "encode",
    "encode_membership",
    "from_base64",
    "from_gaps",
    "gaps",
    "invalid_metadata",
    "largest_span",
    "max_membership_bytes",
    "pack",
    "span_limit",
    "unpack",
    "unzigzag",
    "varint",
    "varints",
    "zigzag",
]

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


LIMIT_BYTES = 4096
"""Broker default of ``offset.metadata.max.bytes``."""

UNLIMITED = 1 << 60

PREFIX = "shoal1:"
"""Prefix of metadata in plain text."""

ENCRYPTED_BYTES = 3008
"""Most bytes that fit when they are encrypted. The limits on delta and on gaps in the log hold for it with and without
a key, so that adding a key changes no decision."""

_FINGERPRINT_BYTES = 8
_CRC_BYTES = 4
_VARINT_BYTES = 10
# Version, coding, ten varints of at most ten bytes, fingerprint, checksum, and the list of future timestamps.
_HEADER_BYTES = 2 + 10 * _VARINT_BYTES + _FINGERPRINT_BYTES + _CRC_BYTES + 1 + MAX_FUTURE_TIMESTAMPED * 5
_BODY_BYTES = ENCRYPTED_BYTES - 1 - _HEADER_BYTES
_ADAPTIVE_LENGTH_BYTES = 2
_BITMAP, _GAPS = 0, 1
"""Coding of the incomplete offsets."""
_UNFINISHED, _HANDED_OVER = 2, 4
"""Flags in the same byte: there are unfinished clusters; clusters may have been handed over and not committed."""
_HEAD_NUMBERS = 8
_PADDINGS = 3
"""Each of these varints has a padding of 0 to 2. `_HEADER_BYTES` has room for it: times take six of ten bytes."""
_VERSION, _VERSION_WITH_ADAPTIVE_STATE = 2, 3
_NO_GAP = 1 << 63
"""Larger than any gap between two offsets."""


@dataclass(frozen=True, slots=True)
class CommittedState:
    """One commit: the offset state, the fingerprint of the policy (SHA-256, hex) and the time (ms).

    Attributes
    ----------
    first_partition_count : int
        Number of partitions of the input when the group first started, or when a version that keeps this number first
        took up the progress of an older one. 0 if it is not known.
    output_rows : OutputRows or None
        Where the rows of its transaction are in the output; None if it is not known, or if there is no output.
    """

    state: OffsetState
    fingerprint: str
    at_ms: int
    first_partition_count: int = 0
    output_rows: OutputRows | None = None

    def has_policy(self, fingerprint: str) -> bool:
        """Return whether the commit was made under the policy with this fingerprint (SHA-256, hex)."""
        kept = 2 * _FINGERPRINT_BYTES
        return fingerprint[:kept] == self.fingerprint[:kept]

    def under_policy(self, fingerprint: str) -> CommittedState:
        """Return the same progress under another policy: without the adaptive state, which only its own can use."""
        return replace(self, fingerprint=fingerprint, state=replace(self.state, adaptive_state=b""))


def encode(commit: CommittedState, topic: str, partition: int) -> str:
    """Return the metadata of a commit in plain text; at most `LIMIT_BYTES` characters.

    Raises
    ------
    InputError
        They do not fit, which `span_limit` prevents.
    """
    body = pack(commit)
    body += _checksum(body, topic, partition, commit.state.committed_offset)
    text = PREFIX + base64.b64encode(body).decode("ascii")
    if len(text) > LIMIT_BYTES:
        raise InputError("the committed state does not fit into the offset metadata: lower stream.delta")
    return text


def decode(text: str, topic: str, partition: int, committed_offset: int) -> CommittedState:
    """Decode what `encode` returned.

    Raises
    ------
    InputError
        The text was not written by this version of Shoal for this topic, partition and offset.
    """
    where = f"{topic}-{partition}"
    if not text.startswith(PREFIX):
        raise InputError(
            f"{where}: the committed offset carries no progress of this version of Shoal (reset by another "
            "tool?): bring it back with 'shoal progress --import', or start with --skip-to-end"
        )
    try:
        body = from_base64(text[len(PREFIX) :])
        if _checksum(body[:-_CRC_BYTES], topic, partition, committed_offset) != body[-_CRC_BYTES:]:
            raise ValueError  # noqa: TRY301 - one error for all that is invalid
        return unpack(body[:-_CRC_BYTES], committed_offset)
    except (ValueError, IndexError):
        raise invalid_metadata(topic, partition) from None


def invalid_metadata(topic: str, partition: int) -> InputError:
    """Return the error for metadata that were changed, or were written for another offset, partition or topic."""
    return InputError(
        f"{topic}-{partition}: the offset metadata is broken, or belongs to another group, topic, partition or offset. "
        "Import an export with 'shoal progress POLICY --import FILE', or start with --skip-to-end"
    )


def from_base64(text: str) -> bytes:
    """Decode base64 strictly: each sequence of bytes has one text.

    Raises
    ------
    ValueError
        The text is not that of any bytes.
    """
    raw = base64.b64decode(text, validate=True)  # its error is a ValueError
    if base64.b64encode(raw).decode("ascii") != text:
        raise ValueError
    return raw


def pack(commit: CommittedState) -> bytes:
    """Return a commit as bytes, without topic, partition and committed offset."""
    state = commit.state
    coding, listed = _pack(tuple(sorted((*state.incomplete, *itertools.chain(*state.unfinished_clusters)))))
    reference, start = state.reference, state.committed_offset
    version = _VERSION_WITH_ADAPTIVE_STATE if state.adaptive_state else _VERSION
    flags = (_UNFINISHED if state.unfinished_clusters else 0) | (_HANDED_OVER if state.handed_over_uncommitted else 0)
    body = bytearray([version, coding | flags])
    numbers = (
        state.next_offset - start,
        state.stream_time + 1,
        state.next_cluster_number,
        0 if state.flush_at_offset is None else state.flush_at_offset - start + 1,
        commit.at_ms,
        0 if reference is None else zigzag(reference.offset - start) + 1,
        0 if reference is None else zigzag(reference.timestamp),
        start - state.released_from,
    )
    body += b"".join(map(varint, numbers, _digits(commit.first_partition_count)))
    body += bytes.fromhex(commit.fingerprint[: 2 * _FINGERPRINT_BYTES])
    if state.adaptive_state:
        body += varint(len(state.adaptive_state)) + state.adaptive_state
    future = list(gaps(state.future_timestamped, start))
    if commit.output_rows is not None and (number := commit.output_rows.to_number()) is not None:
        future.append(_NO_GAP + number)
    body += varint(len(future)) + b"".join(map(varint, future))
    if state.unfinished_clusters:
        body += varint(zigzag(state.released_up_to - start)) + varint(len(listed))
        listed += encode_membership(state.incomplete, state.unfinished_clusters)
    body += listed
    return bytes(body)


def unpack(body: bytes, committed_offset: int) -> CommittedState:
    """Decode what `pack` returned.

    Raises
    ------
    ValueError, IndexError
        `pack` did not write these bytes.
    """
    if body[0] not in {_VERSION, _VERSION_WITH_ADAPTIVE_STATE}:
        raise ValueError
    has_unfinished, start = bool(body[1] & _UNFINISHED), committed_offset
    numbers = VarintReader(body, 2)
    head = [(numbers.take(), numbers.padding) for _ in range(_HEAD_NUMBERS)]
    ahead, stream_time, next_cluster_number, flush, at_ms, reference_offset, reference_time, since = (
        number for number, _ in head
    )
    fingerprint = numbers.take_bytes(_FINGERPRINT_BYTES).hex()
    adaptive_state = numbers.take_bytes(numbers.take()) if body[0] == _VERSION_WITH_ADAPTIVE_STATE else b""
    future = [numbers.take() for _ in range(numbers.take())]
    output_rows = OutputRows.from_number(future.pop() - _NO_GAP) if future and future[-1] >= _NO_GAP else None
    released_up_to = start + unzigzag(numbers.take()) if has_unfinished else 0
    size = numbers.take() if has_unfinished else len(body) - numbers.index
    listed = _unpack(body[1] & ~(_UNFINISHED | _HANDED_OVER), numbers.take_bytes(size), start)
    incomplete, unfinished_clusters = (
        decode_membership(body[numbers.index :], listed) if has_unfinished else (listed, ())
    )
    if listed and (listed[0] != start or listed[-1] >= start + ahead):
        raise ValueError
    state = OffsetState(
        committed_offset=start,
        next_offset=start + ahead,
        incomplete=incomplete,
        future_timestamped=tuple(from_gaps(future, start)),
        stream_time=stream_time - 1,
        next_cluster_number=next_cluster_number,
        flush_at_offset=None if flush == 0 else start + flush - 1,
        reference=None
        if reference_offset == 0
        else ReferenceRecord(start + unzigzag(reference_offset - 1), unzigzag(reference_time)),
        released_from=start - since,
        adaptive_state=adaptive_state,
        unfinished_clusters=unfinished_clusters,
        released_up_to=released_up_to,
        handed_over_uncommitted=bool(body[1] & _HANDED_OVER),
    )
    return CommittedState(state, fingerprint, at_ms, _from_digits([padding for _, padding in head]), output_rows)


def _digits(partition_count: int) -> list[int]:
    """Return the padding of each of the eight varints: a number in base 3, lowest digit first; 0 if it is too large."""
    known = partition_count if partition_count < _PADDINGS**_HEAD_NUMBERS else 0
    return [known // _PADDINGS**index % _PADDINGS for index in range(_HEAD_NUMBERS)]


def _from_digits(paddings: list[int]) -> int:
    if max(paddings) >= _PADDINGS:
        raise ValueError
    return sum(padding * _PADDINGS**index for index, padding in enumerate(paddings))


def span_limit(policy: Policy) -> int:
    """Return `largest_span` under a policy.

    Raises
    ------
    InputError
        Metadata under this policy can pass the limit.
    """
    smallest_unfinished = release_strategy(policy).smallest_unfinished_cluster(policy.k)
    return largest_span(policy.require_stream().delta, BLOCK_RECORDS, AdaptiveState.size(policy), smallest_unfinished)


def largest_span(delta: int, block: int, adaptive_bytes: int = 0, smallest_unfinished: int = 0) -> int:
    """Return the largest distance (offsets) between the oldest incomplete record and the newest that always fits.

    Parameters
    ----------
    delta : int
        Largest delay (records).
    block : int
        Records that may be read and not decided on at a commit: one block.
    adaptive_bytes : int
        Size of the adaptive state; 0 where the policy keeps none.
    smallest_unfinished : int
        Size of the smallest cluster that can be unfinished; 0 if clusters are released as a whole. With ordered
        release, released records are listed until the last record of their cluster is released, up to 2 delta.

    Returns
    -------
    int
        The span, or `UNLIMITED` when gaps always fit.

    Raises
    ------
    InputError
        delta alone, without any gap in the log, can pass the limit.
    """
    factor, free = 2 if smallest_unfinished else 1, _free_bytes(delta, block, adaptive_bytes, smallest_unfinished)
    if _free_bytes(0, block, adaptive_bytes, 0) <= 0:
        raise InputError(
            "the spreads of so many attributes do not fit into the group's metadata: set steering.scaling: bounds"
        )
    if not _fits(delta, block, adaptive_bytes, smallest_unfinished):
        deltas = range(min(delta, 8 * _BODY_BYTES))
        most = (
            bisect_left(deltas, True, key=lambda other: not _fits(other, block, adaptive_bytes, smallest_unfinished))
            - 1
        )
        raise InputError(
            f"stream.delta: {delta} does not fit into the group's metadata; at most {most}"
            + (" with stream.release: ordered" if smallest_unfinished else "")
        )
    listed = _listed(delta, block, smallest_unfinished)
    low, high = listed, UNLIMITED
    if _most_bytes(listed, high) <= free:
        return UNLIMITED
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _most_bytes(listed, middle) <= free else (low, middle)
    return (low - block) // factor


def _listed(delta: int, block: int, smallest_unfinished: int) -> int:
    """Return the largest number of offsets that are listed."""
    return (2 if smallest_unfinished else 1) * (delta + 1) + block


def _free_bytes(delta: int, block: int, adaptive_bytes: int, smallest_unfinished: int) -> int:
    """Return how many bytes remain for the listed offsets."""
    memberships = 0
    if smallest_unfinished:
        memberships = max_membership_bytes(
            _listed(delta, block, smallest_unfinished), 2 * (delta + 1), smallest_unfinished
        )
    return _BODY_BYTES - memberships - (adaptive_bytes + _ADAPTIVE_LENGTH_BYTES if adaptive_bytes else 0)


def _fits(delta: int, block: int, adaptive_bytes: int, smallest_unfinished: int) -> bool:
    listed = _listed(delta, block, smallest_unfinished)
    return _most_bytes(listed, listed) <= _free_bytes(delta, block, adaptive_bytes, smallest_unfinished)


def _most_bytes(count: int, span: int) -> int:
    """Return an upper bound on the packed size of ``count`` offsets within ``span``."""
    bitmap = span // 8 + 1
    # A gap takes one byte more for each 7 bits; at most span/2^b gaps can be 2^b or more.
    as_gaps = count + sum(min(count, span >> bits) for bits in range(7, 63, 7))
    return min(bitmap, as_gaps)


def _pack(offsets: tuple[int, ...]) -> tuple[int, bytes]:
    if not offsets:
        return _GAPS, b""
    first, last = offsets[0], offsets[-1]
    as_gaps = b"".join(map(varint, gaps(offsets, first)))
    if (last - first) // 8 + 1 >= len(as_gaps):
        return _GAPS, as_gaps
    bits = bytearray((last - first) // 8 + 1)
    for offset in offsets:
        index = offset - first
        bits[index >> 3] |= 1 << (index & 7)
    return _BITMAP, bytes(bits)


def _unpack(coding: int, packed: bytes, start: int) -> tuple[int, ...]:
    if coding == _BITMAP:
        return tuple(
            start + 8 * index + bit for index, byte in enumerate(packed) for bit in range(8) if byte >> bit & 1
        )
    if coding != _GAPS:
        raise ValueError
    return tuple(from_gaps(varints(packed), start))


def _checksum(body: bytes, topic: str, partition: int, committed_offset: int) -> bytes:
    context = f"{topic}\n{partition}\n{committed_offset}\n".encode()
    return zlib.crc32(context + body).to_bytes(_CRC_BYTES, "big")
