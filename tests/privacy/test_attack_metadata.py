"""Readers of the group's metadata: what left together, which states differ, and whether a value is in it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from shoal.errors import InputError
from shoal.kafka.metadata import CommittedState, MetadataCipher, decode, encode
from shoal.kafka.offsets import OffsetState, ReferenceRecord
from shoal.policy import Policy
from support.attack_results import impossible, measured
from support.by_night import at_night
from support.kafka_broker import wait_until
from support.raw_log import everything_in
from support.running import Stage

PREFIX = "shoal1:"
ENCRYPTED_PREFIX = "shoal1-aes:"

KEY = bytes(range(60, 92))


# ---------------------------------------------------------------- which of two states


def state(held: tuple[int, ...]) -> CommittedState:
    anchor = ReferenceRecord(held[0], 1_700_000_000_000)
    snapshot = OffsetState(
        held[0], held[-1] + 1, held, stream_time=1_700_000_000_000, next_cluster_number=12, reference=anchor
    )
    return CommittedState(snapshot, "0123456789abcdef", 1_700_000_000_000)


def pairs() -> dict[str, tuple[CommittedState, CommittedState]]:
    """States that are packed in as many bytes, and tell as different things as can be."""
    even, odd = tuple(range(1000, 1200, 2)), (1000, *range(1001, 1197, 2), 1198)
    dense = (*range(1000, 1100), 1198)
    return {"even or odd": (state(even), state(odd)), "even or dense": (state(even), state(dense))}


def bits(texts: list[str]) -> np.ndarray:
    raw = [np.frombuffer(base64.b64decode(text.split(":", 1)[1]), np.uint8) for text in texts]
    shortest = min(map(len, raw))
    return np.unpackbits(np.stack([row[:shortest] for row in raw]), axis=1).astype(np.float64)


def distinguished(cipher: MetadataCipher, one: CommittedState, other: CommittedState, count: int) -> float:
    """Share of right guesses of an attacker who has learned from as many labelled metadata as he then sees.

    He weighs every bit by how much more often it is set in one state (naive Bayes).
    """
    texts = [[cipher.encode(commit, "t", 0) for _ in range(2 * count)] for commit in (one, other)]
    assert len({len(text) for of_state in texts for text in of_state}) == 1, "their lengths tell them apart"
    learned = [bits(of_state[:count]) for of_state in texts]
    share = [np.clip(rows.mean(axis=0), 1e-3, 1 - 1e-3) for rows in learned]
    weight = np.log(share[1] / share[0]), np.log((1 - share[1]) / (1 - share[0]))
    right = 0
    for label, of_state in enumerate(texts):
        seen = bits(of_state[count:])
        score = seen @ weight[0] + (1 - seen) @ weight[1]
        right += int(((score > 0) == bool(label)).sum())
    return right / (2 * count)


@pytest.mark.parametrize("name", [*list(pairs())[:1], *at_night(*list(pairs())[1:])])
def test_under_a_key_two_states_look_alike_bit_for_bit(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    one, other = pairs()[name]
    random, count = Random(5), 1500
    monkeypatch.setattr(os, "urandom", random.randbytes)
    in_plain = distinguished(MetadataCipher("g"), one, other, 10)
    measured(
        "R8",
        f"tell two states of the held offsets apart, {name}, without a key",
        knows="the group's metadata",
        success=in_plain,
        bound=1.0,
        source="outside the guarantee: point 9",
    )
    measured(
        "R8",
        f"tell two states of the held offsets apart, {name}, under a key",
        knows="the group's metadata, and 1500 of each state before",
        success=distinguished(MetadataCipher("g", (KEY,)), one, other, count),
        bound=0.5,
        error=0.5 / (2 * count) ** 0.5,
        source="guessing",
    )


def test_states_of_other_sizes_have_one_length_up_to_a_delta_of_a_thousand() -> None:
    cipher = MetadataCipher("g", (KEY,))
    sizes = {len(cipher.encode(state(tuple(range(5, 6 + held))), "t", 0)) for held in range(1, 1000, 7)}
    assert len(sizes) == 1
    plain = {len(encode(state(tuple(range(5, 6 + held))), "t", 0)) for held in range(1, 1000, 7)}
    assert len(plain) > 20, "in plain the length tells; otherwise this test would show nothing"


def is_read(cipher: MetadataCipher, raw: bytes, committed_offset: int) -> bool:
    try:
        cipher.decode(ENCRYPTED_PREFIX + base64.b64encode(raw).decode(), "t", 0, committed_offset)
    except InputError:
        return False
    return True


def test_whatever_is_changed_in_metadata_under_a_key_is_seen() -> None:
    random, cipher = Random(1), MetadataCipher("g", (KEY,))
    passed = tried = 0
    for _ in range(20):
        held = tuple(sorted(random.sample(range(1000, 1400), random.randint(1, 200))))
        raw = base64.b64decode(cipher.encode(state(held), "t", 0)[len(ENCRYPTED_PREFIX) :])
        assert is_read(cipher, raw, held[0])
        for place in range(8 * len(raw)):
            bent = bytearray(raw)
            bent[place >> 3] ^= 1 << (place & 7)
            tried += 1
            passed += is_read(cipher, bytes(bent), held[0])
    assert tried > 40_000
    measured(
        "R8",
        "changed bits of encrypted metadata that a start does not see",
        knows="the group's metadata, and may write it",
        success=passed / tried,
        bound=0.0,
        source="AES-GCM",
    )


# ---------------------------------------------------------------- what a broker keeps


async def work(stage: Stage, records: list[bytes]) -> None:
    """Let the service take records in five turns, so that there are commits in between."""
    for start in range(0, len(records), len(records) // 5):
        places = await stage.send(records[start:][: len(records) // 5])
        first = places[0][1]
        async with stage.run() as run:
            await run.until_read(len(places))

            async def is_committed(first: int = first) -> bool:
                return (await stage.progress()).state.next_offset > first

            await wait_until(is_committed, what="a commit of this turn")


async def kept(stage: Stage) -> list[bytes]:
    """Every commit of the group that the broker keeps: what replication, backups and administrators see."""
    everything = await everything_in(stage.bootstrap, "__consumer_offsets")
    return [key + value for key, value in everything if stage.group.encode() in key + value]


def texts_in(entries: list[bytes], prefix: str) -> Iterator[str]:
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
    for entry in entries:
        place = entry.find(prefix.encode())
        if place >= 0:
            end = place + len(prefix)
            while end < len(entry) and entry[end] in alphabet:
                end += 1
            yield entry[place:end].decode()


def is_readable(text: str, topic: str) -> bool:
    """Whether an attacker without a key can read the held offsets from a commit, by trying every offset."""
    for committed_offset in range(500):
        try:
            decode(text, topic, 0, committed_offset)
        except InputError:
            continue
        return True
    return False


@pytest.mark.parametrize("way", ["without a key", "under a key"])
async def test_commits_show_which_records_were_released_together_only_without_a_key(stage: Stage, way: str) -> None:
    if way == "under a key":
        stage.give_keys(KEY.hex())
    await work(stage, [stage.record() for _ in range(150)])
    entries = await kept(stage)
    plain, sealed = list(texts_in(entries, PREFIX)), list(texts_in(entries, ENCRYPTED_PREFIX))
    assert len(plain) + len(sealed) >= 5
    assert bool(plain) == (way == "without a key") != bool(sealed)
    readable = [is_readable(text, stage.topics["input"]) for text in [*plain, *sealed]]
    measured(
        "R8",
        f"commits from which the held offsets can be read, {way}",
        knows="all commits that the broker keeps",
        success=sum(readable) / len(readable),
        bound=1.0 if way == "without a key" else 0.0,
        source="outside the guarantee: point 9" if way == "without a key" else "AES-GCM",
    )


EXTREMES = (3_987_654_321, 271_828_183)
INCOME = {"role": "quasi_identifier", "bounds": [0, 4_000_000_000], "resolution": 1}


def spellings(value: int, message: bytes) -> Iterator[bytes]:
    """All forms in which a value, or a fingerprint of it or of its message, could stand in bytes."""
    yield str(value).encode()
    for code in ("<q", ">q", "<Q", ">Q", "<d", ">d", "<f", ">f", "<I", ">I"):
        yield struct.pack(code, value)
    for number in (value, 2 * value):
        sevens = [number >> shift & 127 for shift in range(0, number.bit_length(), 7)]
        yield bytes([*(seven | 128 for seven in sevens[:-1]), sevens[-1]])
    for text in (message, str(value).encode(), struct.pack("<d", value), struct.pack(">d", value)):
        for check in (zlib.crc32(text), zlib.adler32(text)):
            yield struct.pack("<I", check)
            yield struct.pack(">I", check)
        for digest in (hashlib.md5, hashlib.sha1, hashlib.sha256, hashlib.blake2b):
            yield digest(text).digest()[:6]
            yield digest(text).hexdigest()[:12].encode()


@pytest.mark.parametrize("way", ["without a key", "under a key"])
async def test_extreme_values_do_not_change_what_is_committed(bootstrap: str, tmp_path: Path, way: str) -> None:
    stage = await Stage.create(bootstrap, tmp_path, attributes={"income": INCOME})
    if way == "under a key":
        stage.give_keys(KEY.hex())
    random = Random(3)
    records = [stage.record(income=random.randrange(1_000_000, 2_000_000)) for _ in range(150)]
    for place, value in zip((31, 74), EXTREMES, strict=True):
        records[place] = json.dumps(json.loads(records[place]) | {"income": value}).encode()
    # One of them is the first record of all, where a scale that is learned would start, one is held at the end.
    records[0] = json.dumps(json.loads(records[0]) | {"income": EXTREMES[0]}).encode()
    records[-1] = json.dumps(json.loads(records[-1]) | {"income": EXTREMES[1]}).encode()
    await work(stage, records)
    entries = await kept(stage)
    assert len(entries) >= 5
    opened = [base64.b64decode(text[len(PREFIX) :]) for text in texts_in(entries, PREFIX)]
    cipher = MetadataCipher.of(stage.settings())
    if way == "under a key":
        assert (await stage.progress()).state.incomplete, "nobody looked at what is encrypted"
    assert bool(opened) == (cipher.keys[0] is None)
    haystack = b"\n".join([*entries, *opened])
    needles = {
        needle
        for place in (0, 31, 74, len(records) - 1)
        for needle in spellings(json.loads(records[place])["income"], records[place])
    }
    found = [needle for needle in needles if needle in haystack]
    # The search finds what is there.
    assert stage.group.encode() in haystack
    if way == "without a key":
        assert bytes.fromhex(Policy.load(stage.policy_file()).fingerprint[:16]) in haystack
    measured(
        "R9",
        f"forms and fingerprints of extreme values in the group's commits, {way}",
        knows="all commits that the broker keeps, and every value to look for",
        success=float(len(found)),
        bound=0.0,
        source="offsets, times, counters and figures of published values only",
    )
    impossible(
        "R9", "progress is packed from offsets, broker timestamps, counters, and spreads and means of published values"
    )
