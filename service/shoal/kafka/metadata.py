"""The text that Kafka stores with a committed offset (the offset metadata): an `OffsetState` in at most 4096 bytes.

Layout: ``shoal1:`` and the base64 of a version byte, sections, and a CRC-32. The checksum also covers topic, partition
and committed offset, so that metadata copied elsewhere are refused. A section is a tag (one byte), the length of its
content (a varint), and the content. Tags ascend. A reader refuses a tag that it does not know, unless it is 128 or
more. Numbers are varints, offsets are relative to the committed one; an empty section is left out.

=== ==================================================================================================================
tag content
=== ==================================================================================================================
1   next offset, stream time, next cluster number, flush, time of the commit, reference record (2), start of the group
2   the first 8 bytes of the policy's fingerprint
3   offsets that are incomplete or in unfinished clusters, as a bitmap; or
4   the same as gaps, whichever is smaller
5   unfinished clusters: up to where their members are released, and to which cluster each offset belongs
6   rejected future timestamps, as gaps between offsets
7   the adaptive state
8   nothing: clusters may have been handed over and are not committed
128 the partition count of the group's first start
129 where the rows of this commit are in the output
=== ==================================================================================================================

Metadata of another version are refused, except those of versions 2 and 3 where nothing waits: that is what a drain by
such a version leaves. No byte depends on a record's content that is not published. The Parallel Consumer of Confluent
encodes incomplete offsets in the same way (`OffsetMapCodecManager`).

`MetadataCipher` can encrypt the metadata. In plain text they show a principal that may describe the group which records
were released together; encrypted, only their length, 256 bytes and steps of 64. Layout: ``shoal1-aes:`` and the base64
of a key identifier (4 bytes), nonce (12, random), ciphertext, tag (16). The cipher is AES-256-GCM (NIST SP 800-38D).
Each topic, partition and group has its own key, derived by HKDF-SHA256 (RFC 5869), so that the limit of 2^32 random
nonces holds for each. The committed offset and the key identifier are authenticated with the text.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import math
import os
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from shoal.errors import GuaranteeError, InputError
from shoal.kafka.credentials import KEY_BYTES, MetadataKey, metadata_keys
from shoal.kafka.offsets import MAX_FUTURE_TIMESTAMPED, OffsetState, ProgressError, ReferenceRecord
from shoal.policy import KafkaSection, Policy
from shoal.streams import BLOCK_RECORDS, AdaptiveState, release_strategy

LIMIT_BYTES = 4096  # broker default of ``offset.metadata.max.bytes``

UNLIMITED = 1 << 60

PREFIX = "shoal1:"  # prefix of metadata in plain text

ENCRYPTED_PREFIX = "shoal1-aes:"  # prefix of encrypted metadata

MIN_BYTES, STEP_BYTES = 256, 64
IDENTIFIER_BYTES, NONCE_BYTES = 4, 12

ENCRYPTED_BYTES = 3008
"""Most bytes that fit when they are encrypted. The limits on delta and on gaps in the log hold for it with and without
a key, so that adding a key changes no decision."""

REMEDY = "give it in kafka.metadata_key_file, SHOAL_KAFKA__METADATA_KEY_FILE or SHOAL_KAFKA__METADATA_KEY"

_VERSION = 4
_FORMER_VERSIONS, _FORMER_NOTHING_LISTED = (2, 3), 1
_NUMBERS, _POLICY, _BITMAP, _GAPS, _UNFINISHED, _FUTURE, _ADAPTIVE_STATE, _HANDED_OVER = range(1, 9)
_PARTITION_COUNT, _OUTPUT_ROWS = 128, 129
_OPTIONAL = 128  # a reader may ignore sections with this tag or a higher one
_KNOWN = frozenset((*range(1, 9), _PARTITION_COUNT, _OUTPUT_ROWS))

_FINGERPRINT_BYTES, _CRC_BYTES, _NAME_BYTES = 8, 4, 4
# The most bytes of each section, with tag and length. An offset takes 9 bytes, and 10 with its sign, as a timestamp of
# a record; a time by a clock 7; a number of partitions 5. Offsets of future timestamps are close to the committed one.
_HEADER_BYTES = (
    1  # version
    + (2 + 4 * 9 + 2 * 7 + 2 * 10)  # numbers
    + (2 + _FINGERPRINT_BYTES)
    + 3  # tag and length of the offsets
    + (3 + 5 * MAX_FUTURE_TIMESTAMPED)
    + 2  # handed over
    + (2 + 5)  # partition count
    + (2 + 9 + 5 + _NAME_BYTES)  # output rows
    + _CRC_BYTES
)
_BODY_BYTES = ENCRYPTED_BYTES - 1 - _HEADER_BYTES
_ADAPTIVE_LENGTH_BYTES = 3
_UNFINISHED_BYTES = 3 + 9


@dataclass(frozen=True, slots=True)
class OutputRows:
    """Where the rows of a commit are in the output: whatever the clocks say, it shows what was published later."""

    first_offset: int
    """All of them are at this offset of the output or after it. Before it are rows of earlier commits alone."""
    count: int
    name_checksum: int  # CRC-32 of the name of the output: these offsets mean nothing in another topic

    @classmethod
    def of(cls, output: str, first_offset: int, count: int) -> Self:
        """Return the rows of a commit in this output."""
        return cls(first_offset, count, zlib.crc32(output.encode()))

    def are_in(self, output: str) -> bool:
        """Return whether they are in the topic of this name."""
        return self.name_checksum == zlib.crc32(output.encode())


@dataclass(frozen=True, slots=True)
class CommittedState:
    """One commit: the offset state, the fingerprint of the policy (SHA-256, hex) and the time (ms)."""

    state: OffsetState
    fingerprint: str
    at_ms: int
    first_partition_count: int = 0
    """Number of partitions of the input when the group first started; 0 if it is not known."""
    output_rows: OutputRows | None = None
    """Where the rows of its transaction are in the output; None if it is not known, or if there is no output."""

    def has_policy(self, fingerprint: str) -> bool:
        """Return whether the commit was made under the policy with this fingerprint (SHA-256, hex)."""
        kept = 2 * _FINGERPRINT_BYTES
        return fingerprint[:kept] == self.fingerprint[:kept]

    def under_policy(self, fingerprint: str) -> CommittedState:
        """Return the same progress under another policy: without the adaptive state, which only its own can use."""
        return replace(self, fingerprint=fingerprint, state=replace(self.state, adaptive_state=b""))


def _unreadable(where: str, state: str, remedy: str) -> ProgressError:
    """Return the error for metadata that may be valid, but cannot be read by this process."""
    return ProgressError(f"{where}: the offset metadata is {state}: {remedy}; --skip-to-end would discard it", state)


@dataclass(frozen=True, slots=True)
class MetadataCipher:
    """Encodes and decodes the offset metadata of one group; the first of ``keys`` encrypts (None: plain text).

    Guarantee: encrypted metadata are accepted only if a holder of one of the keys wrote them for this group, topic,
    partition and offset. The metadata do not show whether a commit is the latest.
    """

    group: str = ""
    keys: tuple[MetadataKey, ...] = field(default=(None,), repr=False)

    @classmethod
    def of(cls, settings: KafkaSection) -> Self:
        """Read the keys from the settings, or from the file that they name; raises as `metadata_keys`."""
        return cls(str(settings.group), metadata_keys(settings))

    def encode(self, commit: CommittedState, topic: str, partition: int) -> str:
        """Return the metadata of a commit; `span_limit` keeps them within 4096 characters, else raises `InputError`."""
        key = self.keys[0]
        if key is None:
            return encode(commit, topic, partition)
        body = pack(commit) + b"\x80"
        body += bytes(max(MIN_BYTES - len(body), -len(body) % STEP_BYTES))
        if len(body) > ENCRYPTED_BYTES:
            raise InputError("progress does not fit into the group's metadata: lower stream.delta")
        identifier, nonce = _identifier(key), os.urandom(NONCE_BYTES)
        context = self._context(topic, partition)
        authenticated = _authenticated(identifier, context, commit.state.committed_offset)
        encrypted = _cipher(key, context).encrypt(nonce, body, authenticated)
        return ENCRYPTED_PREFIX + base64.b64encode(identifier + nonce + encrypted).decode("ascii")

    def decode(self, text: str, topic: str, partition: int, committed_offset: int) -> CommittedState:
        """Decode what `encode` returned under one of the keys."""
        where = f"{topic}-{partition}"
        if text.startswith(ENCRYPTED_PREFIX):
            return self._decrypt(text, topic, partition, committed_offset)
        if text.startswith(PREFIX) and None not in self.keys:
            raise _unreadable(
                where,
                "in plain, and a key is given",
                "if it was written before there was a key, add the word 'plain' after the key until each partition has "
                "committed",
            )
        return decode(text, topic, partition, committed_offset)

    def is_current(self, text: str) -> bool:
        """Return whether a text that can be read was written under the first key."""
        key = self.keys[0]
        if key is None or not text.startswith(ENCRYPTED_PREFIX):
            return key is None and text.startswith(PREFIX)
        return _from_base64(text[len(ENCRYPTED_PREFIX) :])[:IDENTIFIER_BYTES] == _identifier(key)

    def tag(self, content: bytes, topic: str, partition: int) -> str:
        """Return what shows that content was written together with metadata: a MAC, or without a key a checksum."""
        return _tag(self.keys[0], self._context(topic, partition), content)

    def has_tag(self, tag: str, text: str, content: bytes, topic: str, partition: int) -> bool:
        """Return whether `tag` returned this for the content, under a key of the kind that the metadata have."""
        is_encrypted, context = text.startswith(ENCRYPTED_PREFIX), self._context(topic, partition)
        keys = [key for key in self.keys if (key is not None) == is_encrypted]
        return any(hmac.compare_digest(_tag(key, context, content).encode(), tag.encode()) for key in keys)

    def _decrypt(self, text: str, topic: str, partition: int, committed_offset: int) -> CommittedState:
        where, context = f"{topic}-{partition}", self._context(topic, partition)
        try:
            raw = _from_base64(text[len(ENCRYPTED_PREFIX) :])
        except ValueError:
            raise _invalid(topic, partition) from None
        identifier = raw[:IDENTIFIER_BYTES]
        nonce, encrypted = raw[IDENTIFIER_BYTES:][:NONCE_BYTES], raw[IDENTIFIER_BYTES + NONCE_BYTES :]
        keys = [key for key in self.keys if key is not None]
        known = [key for key in keys if _identifier(key) == identifier]
        if not known:
            state = "encrypted with a key that is not given" if keys else "encrypted, and no key is given"
            raise _unreadable(where, state, f"{REMEDY} (after the key that encrypts, if there is one)")
        for key in known:
            try:
                authenticated = _authenticated(identifier, context, committed_offset)
                body = _cipher(key, context).decrypt(nonce, encrypted, authenticated)
                return unpack(body.rstrip(b"\0")[:-1], committed_offset, where)
            except (InvalidTag, ValueError, IndexError):
                continue
        raise _invalid(topic, partition)

    def _context(self, topic: str, partition: int) -> bytes:
        # Neither a topic nor a group contains a line break, so two contexts never have the same bytes.
        return f"shoal progress\n{topic}\n{partition}\n{self.group}".encode()


NO_ENCRYPTION = MetadataCipher()  # metadata in plain text, for any group


def encode(commit: CommittedState, topic: str, partition: int) -> str:
    """Return the metadata of a commit in plain text. They fit, because `span_limit` is kept; else `InputError`."""
    body = pack(commit)
    body += _checksum(body, topic, partition, commit.state.committed_offset)
    text = PREFIX + base64.b64encode(body).decode("ascii")
    if len(text) > LIMIT_BYTES:
        raise InputError("the committed state does not fit into the offset metadata: lower stream.delta")
    return text


def decode(text: str, topic: str, partition: int, committed_offset: int) -> CommittedState:
    """Decode what `encode` returned; raises as `MetadataCipher.decode`."""
    where = f"{topic}-{partition}"
    if not text.startswith(PREFIX):
        raise InputError(
            f"{where}: the committed offset carries no progress of this version of Shoal (reset by another "
            "tool?): bring it back with 'shoal progress --import', or start with --skip-to-end"
        )
    try:
        body = _from_base64(text[len(PREFIX) :])
        if _checksum(body[:-_CRC_BYTES], topic, partition, committed_offset) != body[-_CRC_BYTES:]:
            raise ValueError  # noqa: TRY301 - one error for all that is invalid
        return unpack(body[:-_CRC_BYTES], committed_offset, where)
    except (ValueError, IndexError):
        raise _invalid(topic, partition) from None


def _invalid(topic: str, partition: int) -> InputError:
    """Return the error for metadata that were changed, or were written for another offset, partition or topic."""
    return InputError(
        f"{topic}-{partition}: the offset metadata is broken, or belongs to another group, topic, partition or offset. "
        "Import an export with 'shoal progress POLICY --import FILE', or start with --skip-to-end"
    )


def _from_base64(text: str) -> bytes:
    """Decode base64 strictly: each sequence of bytes has one text. Raises `ValueError` for another text."""
    raw = base64.b64decode(text, validate=True)  # its error is a ValueError
    if base64.b64encode(raw).decode("ascii") != text:
        raise ValueError
    return raw


def pack(commit: CommittedState) -> bytes:
    """Return a commit as bytes, without topic, partition and committed offset."""
    state, rows = commit.state, commit.output_rows
    reference, start = state.reference, state.committed_offset
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
    sections = {
        _NUMBERS: b"".join(map(varint, numbers)),
        _POLICY: bytes.fromhex(commit.fingerprint[: 2 * _FINGERPRINT_BYTES]),
        _FUTURE: b"".join(map(varint, _gaps(state.future_timestamped, start))),
        _ADAPTIVE_STATE: state.adaptive_state,
    }
    if listed := tuple(sorted((*state.incomplete, *itertools.chain(*state.unfinished_clusters)))):
        tag, content = _pack_offsets(listed)
        sections[tag] = content
    if state.unfinished_clusters:
        memberships = encode_membership(state.incomplete, state.unfinished_clusters)
        sections[_UNFINISHED] = varint(zigzag(state.released_up_to - start)) + memberships
    if commit.first_partition_count:
        sections[_PARTITION_COUNT] = varint(commit.first_partition_count)
    if rows is not None:
        name = rows.name_checksum.to_bytes(_NAME_BYTES, "big")
        sections[_OUTPUT_ROWS] = varint(rows.first_offset) + varint(rows.count) + name
    present = {tag: content for tag, content in sections.items() if content}
    if state.handed_over_uncommitted:
        present[_HANDED_OVER] = b""
    body = (bytes([tag]) + varint(len(content)) + content for tag, content in sorted(present.items()))
    return bytes([_VERSION]) + b"".join(body)


def unpack(body: bytes, committed_offset: int, where: str) -> CommittedState:
    """Decode what `pack` returned; `ProgressError` for another version, `ValueError`, `IndexError` for other bytes."""
    if body[0] in _FORMER_VERSIONS:
        return _unpack_former(body, committed_offset, where)
    sections = _sections(body, where)
    start, present = committed_offset, sections.get
    numbers = VarintReader(sections[_NUMBERS])
    state, at_ms = _read_numbers(numbers, start)
    if numbers.rest():
        raise ValueError
    listed = (
        _bitmap_offsets(sections[_BITMAP], start)
        if _BITMAP in sections
        else tuple(_from_gaps(varints(present(_GAPS, b"")), start))
    )
    if listed and (listed[0] != start or listed[-1] >= state.next_offset):
        raise ValueError
    incomplete, released_up_to = listed, 0
    unfinished_clusters: tuple[tuple[int, ...], ...] = ()
    if _UNFINISHED in sections:
        reader = VarintReader(sections[_UNFINISHED])
        released_up_to = start + unzigzag(reader.take())
        incomplete, unfinished_clusters = decode_membership(reader.rest(), listed)
    state = replace(
        state,
        incomplete=incomplete,
        unfinished_clusters=unfinished_clusters,
        released_up_to=released_up_to,
        future_timestamped=tuple(_from_gaps(varints(present(_FUTURE, b"")), start)),
        adaptive_state=present(_ADAPTIVE_STATE, b""),
        handed_over_uncommitted=_HANDED_OVER in sections,
    )
    count = VarintReader(sections[_PARTITION_COUNT]).take() if _PARTITION_COUNT in sections else 0
    rows = None
    if _OUTPUT_ROWS in sections:
        reader = VarintReader(sections[_OUTPUT_ROWS])
        rows = OutputRows(reader.take(), reader.take(), int.from_bytes(reader.take_bytes(_NAME_BYTES), "big"))
    return CommittedState(state, sections[_POLICY].hex(), at_ms, count, rows)


def _sections(body: bytes, where: str) -> dict[int, bytes]:
    """Return the contents of the sections by their tags, without unknown ones that may be ignored."""
    if body[0] != _VERSION:
        raise _other_version(where)
    reader, sections, last = VarintReader(body, 1), dict[int, bytes](), 0
    while reader.index < len(body):
        (tag,) = reader.take_bytes(1)
        if tag <= last:
            raise ValueError
        if tag not in _KNOWN and tag < _OPTIONAL:
            raise _other_version(where)
        sections[tag], last = reader.take_bytes(reader.take()), tag
    if not {_NUMBERS, _POLICY} <= sections.keys() or len(sections[_POLICY]) != _FINGERPRINT_BYTES:
        raise ValueError
    return sections


def _read_numbers(reader: VarintReader, start: int) -> tuple[OffsetState, int]:
    """Return what the first section says of a state, and the time of its commit (ms)."""
    ahead, stream_time, next_cluster, flush, at_ms, reference, reference_time, since = (reader.take() for _ in range(8))
    state = OffsetState(
        committed_offset=start,
        next_offset=start + ahead,
        stream_time=stream_time - 1,
        next_cluster_number=next_cluster,
        flush_at_offset=start + flush - 1 if flush else None,
        reference=ReferenceRecord(start + unzigzag(reference - 1), unzigzag(reference_time)) if reference else None,
        released_from=start - since,
    )
    return state, at_ms


def _unpack_former(body: bytes, start: int, where: str) -> CommittedState:
    """Return what a version without sections committed when nothing waited, as after a drain; refuse other metadata."""
    reader = VarintReader(body, 2)
    state, at_ms = _read_numbers(reader, start)
    if body[1] != _FORMER_NOTHING_LISTED or state.next_offset != start or state.flush_at_offset is not None:
        raise _other_version(where)
    fingerprint = reader.take_bytes(_FINGERPRINT_BYTES).hex()
    adaptive_state = reader.take_bytes(reader.take()) if body[0] == _FORMER_VERSIONS[-1] else b""
    return CommittedState(replace(state, adaptive_state=adaptive_state), fingerprint, at_ms)


def _other_version(where: str) -> ProgressError:
    return _unreadable(
        where,
        "of another version of Shoal",
        "run 'shoal run POLICY --drain' with that version first, then start this one",
    )


def span_limit(policy: Policy) -> int:
    """Return `largest_span` under a policy; raises `InputError` if metadata under this policy can pass the limit."""
    smallest_unfinished = release_strategy(policy).smallest_unfinished_cluster(policy.k)
    return largest_span(policy.require_stream().delta, BLOCK_RECORDS, AdaptiveState.size(policy), smallest_unfinished)


def largest_span(delta: int, block: int, adaptive_bytes: int = 0, smallest_unfinished: int = 0) -> int:
    """Return the largest distance (offsets) between the oldest incomplete record and the newest that always fits.

    ``block`` records may be read and not decided on at a commit; ``smallest_unfinished`` is 0 if clusters are released
    as a whole. Returns `UNLIMITED` if gaps always fit; raises `InputError` if delta alone can pass the limit.
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
        listed = _listed(delta, block, smallest_unfinished)
        memberships = _UNFINISHED_BYTES + max_membership_bytes(listed, 2 * (delta + 1), smallest_unfinished)
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


def _pack_offsets(offsets: tuple[int, ...]) -> tuple[int, bytes]:
    """Return the tag of the section with these offsets, and its content: a bitmap or gaps, whichever is smaller."""
    first, last = offsets[0], offsets[-1]
    as_gaps = b"".join(map(varint, _gaps(offsets, first)))
    size = (last - first) // 8 + 1
    if size >= len(as_gaps):
        return _GAPS, as_gaps
    return _BITMAP, _bitmap((offset - first for offset in offsets), size)


def _bitmap(indexes: Iterable[int], size: int) -> bytes:
    """Return so many bytes in which the bits of these indexes are set."""
    bits = bytearray(size)
    for index in indexes:
        bits[index >> 3] |= 1 << (index & 7)
    return bytes(bits)


def _bitmap_offsets(packed: bytes, start: int) -> tuple[int, ...]:
    return tuple(start + 8 * index + bit for index, byte in enumerate(packed) for bit in range(8) if byte >> bit & 1)


def _checksum(body: bytes, topic: str, partition: int, committed_offset: int) -> bytes:
    context = f"{topic}\n{partition}\n{committed_offset}\n".encode()
    return zlib.crc32(context + body).to_bytes(_CRC_BYTES, "big")


def _cipher(key: bytes, context: bytes) -> AESGCM:
    return AESGCM(HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=context).derive(key))


def _tag(key: MetadataKey, context: bytes, content: bytes) -> str:
    if key is None:
        return f"{zlib.crc32(context + content):08x}"
    derived = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=b"copy of " + context).derive(key)
    return hmac.digest(derived, content, hashlib.sha256).hex()


def _authenticated(identifier: bytes, context: bytes, committed_offset: int) -> bytes:
    """Return the data that are authenticated with the text and are not part of it."""
    return ENCRYPTED_PREFIX.encode() + identifier + context + f"\n{committed_offset}".encode()


def _identifier(key: bytes) -> bytes:
    """Return bytes that distinguish keys and reveal none."""
    return hmac.digest(key, b"shoal name of a key", hashlib.sha256)[:IDENTIFIER_BYTES]


class VarintReader:
    """Reads variable-length integers (LEB128) and raw bytes one after the other."""

    def __init__(self, body: bytes, index: int = 0) -> None:
        self.body, self.index = body, index

    def take(self) -> int:
        """Read a varint; raises `IndexError` if the bytes end before it."""
        number = shift = 0
        while True:
            byte, self.index = self.body[self.index], self.index + 1
            number |= (byte & 127) << shift
            if byte < 128:  # noqa: PLR2004 - the top bit says that more follow
                return number
            shift += 7

    def take_bytes(self, count: int) -> bytes:
        """Read so many bytes; raises `ValueError` if there are fewer."""
        self.index += count
        if self.index > len(self.body):
            raise ValueError
        return self.body[self.index - count : self.index]

    def rest(self) -> bytes:
        """Read all bytes that are left."""
        return self.take_bytes(len(self.body) - self.index)


def varints(packed: bytes) -> Iterator[int]:
    """Yield all varints."""
    reader = VarintReader(packed)
    while reader.index < len(packed):
        yield reader.take()


def varint(number: int) -> bytes:
    """Return a number as a varint; GuaranteeError if it is negative, which would be read as another number."""
    if number < 0:
        raise GuaranteeError("an offset of a commit is below its committed offset; nothing was committed")
    count = max(1, -(-number.bit_length() // 7))
    groups = [number >> 7 * index & 127 for index in range(count)]
    return bytes([*(group | 128 for group in groups[:-1]), groups[-1]])


def _gaps(offsets: Iterable[int], start: int) -> Iterator[int]:
    """Return the distance of each offset from the one before; that of the first from ``start``."""
    return (offset - before for before, offset in itertools.pairwise(itertools.chain((start,), offsets)))


def _from_gaps(distances: Iterable[int], start: int) -> Iterator[int]:
    """Return the offsets of which `_gaps` returned the distances."""
    return itertools.islice(itertools.accumulate(distances, initial=start), 1, None)


def zigzag(number: int) -> int:
    """Return a number of at least 0 for any number: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return 2 * number if number >= 0 else -2 * number - 1


def unzigzag(number: int) -> int:
    """Return the number of which `zigzag` returned this one."""
    return number // 2 if number % 2 == 0 else -(number + 1) // 2


_COUNT_BYTES = 2


def max_membership_bytes(listed: int, members: int, smallest: int) -> int:
    """Return the most bytes that `encode_membership` needs, with ``members`` in clusters of at least ``smallest``."""
    return _COUNT_BYTES + listed // 8 + 1 + _digit_bytes(members, max(1, members // smallest))


def encode_membership(alone: Sequence[int], clusters: Sequence[Sequence[int]]) -> bytes:
    """Encode to which cluster each offset belongs: one bit and one digit for each.

    The digits are those of one large integer, whose base is the number of clusters: less than a bit field for each.
    """
    number_of = {offset: number for number, members in enumerate(clusters) for offset in members}
    listed = sorted((*alone, *number_of))
    bits = _bitmap((index for index, offset in enumerate(listed) if offset in number_of), len(listed) // 8 + 1)
    number = 0
    for offset in sorted(number_of, reverse=True):
        number = number * len(clusters) + number_of[offset]
    size = _digit_bytes(len(number_of), len(clusters))
    return len(clusters).to_bytes(_COUNT_BYTES, "big") + bits + number.to_bytes(size, "big")


def decode_membership(packed: bytes, listed: Sequence[int]) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Decode what `encode_membership` returned for these offsets: the offsets in no cluster, and the clusters."""
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
