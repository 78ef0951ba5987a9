"""A snapshot of progress as the text that Kafka keeps beside a committed offset, and its size limits.

Layout: ``shoal1:`` and base64 of version, fields as varints, fingerprint, course, held offsets, CRC-32. The held
offsets are a bitmap or gaps as varints, whichever is smaller; where clusters are promised their members are among
them, and behind them stands who is with whom (`labels`). Nothing in it depends on what a record says but what was
published: offsets, broker timestamps, counters, and the course (`pipeline.adaptive_state`), for which
version 3 is written; without one it is version 2, which older workers read. The checksum also covers topic, partition
and offset, so that metadata copied to another place is refused. `seal` writes the same bytes encrypted.
"""

from __future__ import annotations

import base64
import itertools
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shoal.errors import InputError
from shoal.kafka.membership_codec import decode_membership, encode_membership, max_membership_bytes
from shoal.kafka.offset_tracker import VOID_LIMIT, LogProbe, OffsetState

__all__ = [
    "LIMIT_BYTES",
    "PREFIX",
    "SEALED_BYTES",
    "UNLIMITED",
    "CommittedState",
    "broken",
    "decode",
    "encode",
    "from_base64",
    "largest_span",
    "pack",
    "unpack",
]

LIMIT_BYTES = 4096
"""Broker default of ``offset.metadata.max.bytes``."""

UNLIMITED = 1 << 60

PREFIX = "shoal1:"
"""What progress in plain begins with."""

SEALED_BYTES = 3008
"""Most bytes of progress that fit when they are encrypted. The limits on delta and on holes in the log keep to it
with and without a key: who gives one later changes nothing of what is decided."""

_FINGERPRINT_BYTES = 8
_CRC_BYTES = 4
_VARINT_BYTES = 10
# version, coding, ten varints of at most ten bytes, fingerprint, checksum, and the list of void offsets.
_HEADER_BYTES = 2 + 10 * _VARINT_BYTES + _FINGERPRINT_BYTES + _CRC_BYTES + 1 + VOID_LIMIT * 5
_BODY_BYTES = SEALED_BYTES - 1 - _HEADER_BYTES
_COURSE_LENGTH_BYTES = 2
_BITMAP, _GAPS, _PROMISED, _SHOWN = 0, 1, 2, 4
"""Of the held offsets; and marks beside it: clusters are promised, clusters decided later may have been seen."""
_VERSION, _VERSION_WITH_COURSE = 2, 3


@dataclass(frozen=True, slots=True)
class CommittedState:
    """What stands beside a committed offset: the snapshot, the policy's fingerprint (hex) and when (ms)."""

    snapshot: OffsetState
    fingerprint: str
    at: int

    def carries(self, fingerprint: str) -> bool:
        """Whether the commit was made under the policy with this fingerprint (SHA-256, hex)."""
        kept = 2 * _FINGERPRINT_BYTES
        return fingerprint[:kept] == self.fingerprint[:kept]


def encode(commit: CommittedState, topic: str, partition: int) -> str:
    """Text to commit beside ``commit.snapshot.watermark``, in plain; at most `LIMIT_BYTES` characters.

    Raises
    ------
    InputError
        If it does not fit, which `largest_span` prevents.
    """
    body = pack(commit)
    body += _checksum(body, topic, partition, commit.snapshot.watermark)
    text = PREFIX + base64.b64encode(body).decode("ascii")
    if len(text) > LIMIT_BYTES:
        raise InputError("progress does not fit into the group's metadata: lower stream.delta")
    return text


def decode(text: str, topic: str, partition: int, watermark: int) -> CommittedState:
    """Read back what `encode` wrote.

    Raises
    ------
    InputError
        If it was not written by this version of Shoal for this topic, partition and offset, in words that
        say what to do.
    """
    where = f"{topic}-{partition}"
    if not text.startswith(PREFIX):
        raise InputError(
            f"{where}: the committed offset carries no progress of this version of Shoal (reset by another "
            "tool?): bring it back with 'shoal progress --import', or start with --skip-to-end"
        )
    try:
        body = from_base64(text[len(PREFIX) :])
        if _checksum(body[:-_CRC_BYTES], topic, partition, watermark) != body[-_CRC_BYTES:]:
            raise ValueError  # noqa: TRY301 - one refusal for everything that is broken
        return unpack(body[:-_CRC_BYTES], watermark)
    except (ValueError, IndexError):
        raise broken(topic, partition) from None


def broken(topic: str, partition: int) -> InputError:
    """Refusal of progress that was changed, or was written for another place."""
    return InputError(
        f"{topic}-{partition}: the progress beside the committed offset is broken or belongs elsewhere: bring it back "
        "with 'shoal progress --import', or start with --skip-to-end"
    )


def from_base64(text: str) -> bytes:
    """Bytes of a text that is exactly what base64 makes of them.

    Raises
    ------
    ValueError
        If it is not.
    """
    raw = base64.b64decode(text, validate=True)  # its error is a ValueError
    if base64.b64encode(raw).decode("ascii") != text:
        raise ValueError
    return raw


def pack(commit: CommittedState) -> bytes:
    """Write a commit as bytes; where it stands (topic, partition, watermark) is left out."""
    state = commit.snapshot
    coding, held = _pack(tuple(sorted((*state.held, *itertools.chain(*state.promised)))))
    anchor = state.anchor
    version = _VERSION_WITH_COURSE if state.course else _VERSION
    marks = (_PROMISED if state.promised else 0) | (_SHOWN if state.shown else 0)
    body = bytearray([version, coding | marks])
    for number in (
        state.next_offset - state.watermark,
        state.clock + 1,
        state.clusters,
        0 if state.drain is None else state.drain - state.watermark + 1,
        commit.at,
        0 if anchor is None else _zigzag(anchor.offset - state.watermark) + 1,
        0 if anchor is None else _zigzag(anchor.timestamp),
        state.watermark - state.origin,
    ):
        body += _varint(number)
    body += bytes.fromhex(commit.fingerprint[: 2 * _FINGERPRINT_BYTES])
    if state.course:
        body += _varint(len(state.course)) + state.course
    body += _varint(len(state.void)) + b"".join(map(_varint, _gaps(state.void, state.watermark)))
    if state.promised:
        body += _varint(_zigzag(state.frontier - state.watermark)) + _varint(len(held))
        held += encode_membership(state.held, state.promised)
    body += held
    return bytes(body)


def unpack(body: bytes, watermark: int) -> CommittedState:
    """Read back what `pack` wrote.

    Raises
    ------
    ValueError, IndexError
        It is nothing of the kind.
    """
    if body[0] not in {_VERSION, _VERSION_WITH_COURSE}:
        raise ValueError
    numbers = _Numbers(body, 2)
    ahead, clock, clusters, drain, at, anchor_offset, anchor_time, since = (numbers.take() for _ in range(8))
    fingerprint = numbers.take_bytes(_FINGERPRINT_BYTES).hex()
    course = numbers.take_bytes(numbers.take()) if body[0] == _VERSION_WITH_COURSE else b""
    void = tuple(_from_gaps([numbers.take() for _ in range(numbers.take())], watermark))
    frontier = watermark + _unzigzag(numbers.take()) if body[1] & _PROMISED else 0
    size = numbers.take() if body[1] & _PROMISED else len(body) - numbers.place
    listed = _unpack(body[1] & ~(_PROMISED | _SHOWN), numbers.take_bytes(size), watermark)
    held, promised = decode_membership(body[numbers.place :], listed) if body[1] & _PROMISED else (listed, ())
    if listed and (listed[0] != watermark or listed[-1] >= watermark + ahead):
        raise ValueError
    snapshot = OffsetState(
        watermark=watermark,
        next_offset=watermark + ahead,
        held=held,
        void=void,
        clock=clock - 1,
        clusters=clusters,
        drain=None if drain == 0 else watermark + drain - 1,
        anchor=None
        if anchor_offset == 0
        else LogProbe(watermark + _unzigzag(anchor_offset - 1), _unzigzag(anchor_time)),
        origin=watermark - since,
        course=course,
        promised=promised,
        frontier=frontier,
        shown=bool(body[1] & _SHOWN),
    )
    return CommittedState(snapshot, fingerprint, at)


def largest_span(delta: int, slack: int, course: int = 0, promised: int = 0) -> int:
    """Most offsets between the oldest held record and the newest, so that metadata always fits.

    Parameters
    ----------
    delta : int
        Largest delay (records).
    slack : int
        Records that may be read and not yet decided on at a commit (one block).
    course : int
        Most bytes of the course; 0 where the policy keeps none.
    promised : int
        Records leave one by one, in clusters of at least so many: those that have left are listed until the last one
        of their cluster has, up to 2 delta. 0: clusters leave as a whole.

    Returns
    -------
    int
        The span, or `UNLIMITED` when gaps always fit.

    Raises
    ------
    InputError
        If delta alone, without any hole in the log, can pass the limit.
    """
    turns, room = 2 if promised else 1, _room(delta, slack, course, promised)
    if _room(0, slack, course, 0) <= 0:
        raise InputError("the ranges of so many attributes do not fit into the group's metadata: give their bounds")
    if not _fits(delta, slack, course, promised):
        deltas = range(min(delta, 8 * _BODY_BYTES))
        most = bisect_left(deltas, True, key=lambda other: not _fits(other, slack, course, promised)) - 1
        raise InputError(
            f"stream.delta: {delta} does not fit into the group's metadata; at most {most}"
            + (" with stream.release: ordered" if promised else "")
        )
    listed = _listed(delta, slack, promised)
    low, high = listed, UNLIMITED
    if _most_bytes(listed, high) <= room:
        return UNLIMITED
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _most_bytes(listed, middle) <= room else (low, middle)
    return (low - slack) // turns


def _listed(delta: int, slack: int, promised: int) -> int:
    """Most offsets that are listed."""
    return (2 if promised else 1) * (delta + 1) + slack


def _room(delta: int, slack: int, course: int, promised: int) -> int:
    """Bytes there are for them."""
    labels = max_membership_bytes(_listed(delta, slack, promised), 2 * (delta + 1), promised) if promised else 0
    return _BODY_BYTES - labels - (course + _COURSE_LENGTH_BYTES if course else 0)


def _fits(delta: int, slack: int, course: int, promised: int) -> bool:
    listed = _listed(delta, slack, promised)
    return _most_bytes(listed, listed) <= _room(delta, slack, course, promised)


def _most_bytes(held: int, span: int) -> int:
    """Upper bound on the packed size of ``held`` offsets within ``span``."""
    bitmap = span // 8 + 1
    # A gap takes one byte more for each 7 bits; at most span/2^b gaps can be 2^b or more.
    gaps = held + sum(min(held, span >> bits) for bits in range(7, 63, 7))
    return min(bitmap, gaps)


def _pack(held: tuple[int, ...]) -> tuple[int, bytes]:
    if not held:
        return _GAPS, b""
    gaps = b"".join(map(_varint, _gaps(held, held[0])))
    if (held[-1] - held[0]) // 8 + 1 >= len(gaps):
        return _GAPS, gaps
    bits = bytearray((held[-1] - held[0]) // 8 + 1)
    for offset in held:
        place = offset - held[0]
        bits[place >> 3] |= 1 << (place & 7)
    return _BITMAP, bytes(bits)


def _unpack(coding: int, packed: bytes, watermark: int) -> tuple[int, ...]:
    if coding == _BITMAP:
        return tuple(
            watermark + 8 * place + bit for place, byte in enumerate(packed) for bit in range(8) if byte >> bit & 1
        )
    if coding != _GAPS:
        raise ValueError
    return tuple(_from_gaps(_varints(packed), watermark))


class _Numbers:
    """A cursor over varints and raw bytes."""

    def __init__(self, body: bytes, place: int) -> None:
        self.body, self.place = body, place

    def take(self) -> int:
        number = shift = 0
        while True:
            byte = self.body[self.place]
            self.place += 1
            number |= (byte & 127) << shift
            if byte < 128:  # noqa: PLR2004 - the top bit says that more follow
                return number
            shift += 7

    def take_bytes(self, count: int) -> bytes:
        self.place += count
        if self.place > len(self.body):
            raise ValueError
        return self.body[self.place - count : self.place]


def _varints(packed: bytes) -> Iterator[int]:
    numbers = _Numbers(packed, 0)
    while numbers.place < len(packed):
        yield numbers.take()


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:  # noqa: PLR2004 - seven bits a byte
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _gaps(offsets: Iterable[int], start: int) -> Iterator[int]:
    for offset in offsets:
        yield offset - start
        start = offset


def _from_gaps(gaps: Iterable[int], start: int) -> Iterator[int]:
    for gap in gaps:
        start += gap
        yield start


def _zigzag(number: int) -> int:
    return 2 * number if number >= 0 else -2 * number - 1


def _unzigzag(number: int) -> int:
    return number // 2 if number % 2 == 0 else -(number + 1) // 2


def _checksum(body: bytes, topic: str, partition: int, watermark: int) -> bytes:
    place = f"{topic}\n{partition}\n{watermark}\n".encode()
    return zlib.crc32(place + body).to_bytes(_CRC_BYTES, "big")
