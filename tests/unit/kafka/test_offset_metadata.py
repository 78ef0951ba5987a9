"""Offset metadata, in plain and encrypted: round trips, sizes, what is refused, and where keys come from."""

from __future__ import annotations

import base64
import itertools
import os
import re
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.errors import InputError, PolicyError
from shoal.kafka.metadata import (
    CommittedState,
    MetadataCipher,
    OutputRows,
    decode,
    decode_membership,
    encode,
    encode_membership,
    largest_span,
    max_membership_bytes,
    pack,
)
from shoal.kafka.offsets import OffsetState, ProgressError, ReferenceRecord
from shoal.policy import KafkaSection

pytestmark = pytest.mark.unit


LIMIT_BYTES = 4096
ENCRYPTED_BYTES = 3008
MAX_FUTURE_TIMESTAMPED = 64

FINGERPRINT = "0123456789abcdef" * 4


@st.composite
def snapshots(draw: st.DrawFn) -> OffsetState:
    start = draw(st.integers(0, 2**40))
    gaps = draw(st.lists(st.integers(1, 3000), max_size=60))
    held = tuple(start + sum(gaps[:i]) for i in range(len(gaps)))
    end = (held[-1] if held else start) + draw(st.integers(1, 10_000))
    future = tuple(sorted(draw(st.sets(st.integers(start + 1, start + 5000), max_size=MAX_FUTURE_TIMESTAMPED))))
    reference = draw(
        st.none() | st.builds(ReferenceRecord, st.integers(max(0, start - 5), start), st.integers(-1, 2**42))
    )
    return OffsetState(
        committed_offset=start,
        next_offset=end if held else start,
        incomplete=held,
        future_timestamped=future,
        stream_time=draw(st.integers(-1, 2**42)),
        next_cluster_number=draw(st.integers(0, 2**50)),
        flush_at_offset=draw(st.none() | st.just(end)),
        reference=reference,
        released_from=draw(st.integers(0, start)),
        adaptive_state=draw(st.binary(max_size=200)),
        handed_over_uncommitted=draw(st.booleans()),
    )


@given(snapshots())
def test_encoded_values_can_be_decoded(snapshot: OffsetState) -> None:
    text = encode(CommittedState(snapshot, FINGERPRINT, 1_790_000_000_000), "t", 5)
    found = decode(text, "t", 5, snapshot.committed_offset)
    assert found.state == snapshot
    assert found.has_policy(FINGERPRINT)
    assert not found.has_policy("f" * 64)
    assert found.at_ms == 1_790_000_000_000


@pytest.mark.parametrize(
    ("delta", "state_bytes"),
    [
        *((delta, 0) for delta in (2, 100, 600, 1000, 5000, 20_000)),
        *[(2, 1), (600, 17), (5000, 500), (15_900, 500), (100, 2300)],
    ],
)
def test_within_the_span_metadata_always_fit(delta: int, state_bytes: int) -> None:
    slack = 512
    span, count = largest_span(delta, slack, state_bytes), delta + 1 + slack
    assert span <= largest_span(delta, slack)
    future = tuple(range(2**40 + 1, 2**40 + 1 + MAX_FUTURE_TIMESTAMPED))
    widest, state = min(span, 2**44), b"\xff" * state_bytes
    for held in (
        tuple(range(2**40, 2**40 + count)),
        tuple(2**40 + (widest * i) // (count - 1) for i in range(count)) if widest >= count else (),
        tuple(2**40 + widest + slack - count + 1 + i if i else 2**40 for i in range(count)),
    ):
        if not held or len(set(held)) != len(held):
            continue
        reference = ReferenceRecord(2**40, 2**42)
        snapshot = OffsetState(
            2**40, held[-1] + 1, held, future, 2**42, 2**50, held[-1] + 1, reference, adaptive_state=state
        )
        commit = CommittedState(snapshot, FINGERPRINT, 2**42, 2**31, OutputRows(2**62, 2**33, 2**32 - 1))
        assert len(pack(commit)) < ENCRYPTED_BYTES
        assert len(encode(commit, "t", 0)) <= LIMIT_BYTES


@pytest.mark.parametrize(
    ("delta", "adaptive_bytes", "smallest_unfinished", "span"),
    [(1000, 0, 0, 134_795), (5000, 0, 0, 20_019), (1000, 100, 0, 121_739), (1000, 0, 100, 4369)],
)
def test_the_largest_span_uses_all_free_bytes(
    delta: int, adaptive_bytes: int, smallest_unfinished: int, span: int
) -> None:
    assert largest_span(delta, 500, adaptive_bytes, smallest_unfinished) == span


@pytest.mark.parametrize(
    ("delta", "adaptive_bytes", "smallest_unfinished", "words"),
    [
        (100, 3000, 0, r"spreads of so many attributes .* set steering\.scaling: bounds"),
        (20_000, 500, 0, r"at most \d+$"),
        (25_000, 0, 0, r"at most \d+$"),
        (1003, 0, 10, r"at most 1002 with stream\.release: ordered"),
    ],
)
def test_a_delta_that_does_not_fit_is_refused_with_the_largest_that_does(
    delta: int, adaptive_bytes: int, smallest_unfinished: int, words: str
) -> None:
    with pytest.raises(InputError, match=words) as refused:
        largest_span(delta, 512, adaptive_bytes, smallest_unfinished)
    if found := re.search(r"at most (\d+)", str(refused.value)):
        assert largest_span(int(found[1]), 512, adaptive_bytes, smallest_unfinished) >= int(found[1])
        with pytest.raises(InputError):
            largest_span(int(found[1]) + 8, 512, adaptive_bytes, smallest_unfinished)


FULL = OffsetState(
    committed_offset=7_000_000_000,
    next_offset=7_000_000_041,
    incomplete=(7_000_000_000, 7_000_000_003, 7_000_000_038),
    future_timestamped=(7_000_000_005,),
    stream_time=1_790_000_000_000,
    next_cluster_number=123_456,
    flush_at_offset=7_000_000_041,
    reference=ReferenceRecord(6_999_999_999, 1_790_000_000_500),
    released_from=6_999_000_000,
    adaptive_state=b"\x01\x02\x80",
)
ORDERED = OffsetState(
    committed_offset=100,
    next_offset=140,
    incomplete=(110, 115),
    stream_time=1_790_000_000_000,
    next_cluster_number=9,
    reference=ReferenceRecord(99, 1_790_000_000_500),
    released_from=90,
    unfinished_clusters=((100, 111, 118), (103, 112, 119)),
    released_up_to=95,
    handed_over_uncommitted=True,
)
ROWS = OutputRows.of("visits.anonymous", 77, 5)


@pytest.mark.parametrize(
    ("state", "count", "rows", "text"),
    [
        (
            FULL,
            12,
            None,
            "shoal1:BAEbKYHYwaKMNMDEByqg5ceijDQC6LeDxZhowIQ9AggBI0VniavN7wQDAAMjBgEFBwMBAoCAAQxnN5ha",
        ),
        (
            ORDERED,
            6560,
            ROWS,
            "shoal1:BAEXKIHYwaKMNAkAoOXHoow0Aui3g8WYaAoCCAEjRWeJq83vAwMJnAwFBwkAAtsAACoIAIACoDOBBk0FfkjBFpD9tp4=",
        ),
    ],
)
def test_a_commit_has_these_metadata(state: OffsetState, count: int, rows: OutputRows | None, text: str) -> None:
    commit = CommittedState(state, FINGERPRINT[:16], 1_790_000_100_000, count, rows)
    assert encode(commit, "visits", 3) == text
    assert decode(text, "visits", 3, commit.state.committed_offset) == commit


def text_of(body: bytes) -> str:
    """Return the text of a body for offset 5 of partition 0 of topic t."""
    return "shoal1:" + base64.b64encode(body + zlib.crc32(b"t\n0\n5\n" + body).to_bytes(4, "big")).decode()


ANOTHER_VERSION = (
    "t-0: the offset metadata is of another version of Shoal: run 'shoal run POLICY --drain' with that version first, "
    "then start this one; --skip-to-end would discard it"
)


@pytest.mark.parametrize("body", [b"\x04\x09\x00", b"\x04\x7f\x01x", b"\x05"])
def test_sections_that_must_be_known_and_other_versions_are_refused_with_the_remedy(body: bytes) -> None:
    if body[0] == 4:
        known = pack(CommittedState(OffsetState(5, 9, (5, 7)), FINGERPRINT, 17))
        body = known + body[1:]
    with pytest.raises(ProgressError) as refused:
        decode(text_of(body), "t", 0, 5)
    assert str(refused.value) == ANOTHER_VERSION


def test_an_unknown_section_that_may_be_ignored_is_ignored() -> None:
    commit = CommittedState(OffsetState(5, 9, (5, 7)), FINGERPRINT[:16], 17, 4)
    body = pack(commit)
    assert body[-3:] == b"\x80\x01\x04"
    assert decode(text_of(body + b"\xc8\x02ab"), "t", 0, 5) == commit


@pytest.mark.parametrize("cut", [b"\x03\x00", b"\x01\x00", b"\xc8\x03ab", b"\xc8"])
def test_repeated_misplaced_or_incomplete_sections_are_refused(cut: bytes) -> None:
    body = pack(CommittedState(OffsetState(5, 9, (5, 7)), FINGERPRINT, 17))
    with pytest.raises(InputError, match="the offset metadata is broken"):
        decode(text_of(body + cut), "t", 0, 5)
    without_numbers = b"\x04" + body[11:]
    assert without_numbers[1] == 2
    with pytest.raises(InputError, match="the offset metadata is broken"):
        decode(text_of(without_numbers), "t", 0, 5)


FORMER = {
    "incomplete": "AgAEAAMAEQAABQEjRWeJq83vAAVuIJbp",
    "unfinished clusters": "AgYogdjBoow0CQCg5ceijDQC6LeDxZhoCgEjRWeJq83vAAkDCZwMAALbAAAqRtsgnQ==",
}
"""What the last version without sections wrote: one record at offset 5 waits, or clusters at offset 100."""


@pytest.mark.parametrize(("text", "where"), [("incomplete", ("t", 0, 5)), ("unfinished clusters", ("visits", 3, 100))])
def test_progress_of_a_former_version_is_refused_while_records_wait(text: str, where: tuple[str, int, int]) -> None:
    with pytest.raises(ProgressError, match="run 'shoal run POLICY --drain' with that version first") as refused:
        decode("shoal1:" + FORMER[text], *where)
    assert refused.value.state == "of another version of Shoal"


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_progress_that_a_former_version_has_drained_is_continued(
    monkeypatch: pytest.MonkeyPatch, *, is_encrypted: bool
) -> None:
    # Version 3, nothing listed; numbers (one with padding, which was a partition count), the fingerprint, the adaptive
    # state, no future timestamps, no offsets.
    numbers = "00 81d8c1a28c34 8700 00 a0e5c7a28c34 02 e8b783c59868 05"
    body = bytes.fromhex(f"0301 {numbers} {FINGERPRINT[:16]} 03 010280 00")
    cipher = MetadataCipher("g", (bytes(range(32)),) if is_encrypted else (None,))
    with monkeypatch.context() as former:
        former.setattr("shoal.kafka.metadata.pack", lambda _: body)
        text = cipher.encode(CommittedState(OffsetState(5, 5), FINGERPRINT, 0), "t", 0)
    expected = OffsetState(
        5,
        5,
        stream_time=1_790_000_000_000,
        next_cluster_number=7,
        reference=ReferenceRecord(4, 1_790_000_000_500),
        released_from=0,
        adaptive_state=b"\x01\x02\x80",
    )
    commit = cipher.decode(text, "t", 0, 5)
    assert commit == CommittedState(expected, FINGERPRINT[:16], 1_790_000_100_000)
    assert cipher.decode(cipher.encode(commit, "t", 0), "t", 0, 5) == commit


@pytest.mark.parametrize("keys", [(None,), (b"k" * 32,)], ids=["plain", "encrypted"])
def test_metadata_that_are_too_long_are_an_error(keys: tuple[bytes | None, ...]) -> None:
    held = tuple(range(0, 90_000, 3))
    with pytest.raises(InputError, match="does not fit"):
        MetadataCipher("g", keys).encode(CommittedState(OffsetState(0, 90_001, held), FINGERPRINT, 0), "t", 0)


def good() -> str:
    return encode(CommittedState(OffsetState(5, 9, (5, 7), next_cluster_number=3), FINGERPRINT, 17), "t", 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "something else",
        "shoal1:",
        "shoal1:????",
        "shoal2:" + good()[7:],
        good()[:-4],
        good() + "AAAA",
        good()[:20] + ("A" if good()[20] != "A" else "B") + good()[21:],
    ],
)
def test_foreign_or_invalid_metadata_are_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(InputError, match=r"--import.*--skip-to-end"):
        decode(text, "t", 0, 5)


def test_every_flipped_bit_is_detected() -> None:
    body = bytearray(base64.b64decode(good()[7:]))
    for place in range(len(body)):
        for bit in range(8):
            body[place] ^= 1 << bit
            with pytest.raises(InputError):
                decode("shoal1:" + base64.b64encode(bytes(body)).decode(), "t", 0, 5)
            body[place] ^= 1 << bit


# ---------------------------------------------------------------- memberships in clusters


@st.composite
def labelled(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    labels = draw(st.lists(st.integers(0, 9), min_size=1, max_size=80))
    labels[0] = labels[0] or 1
    offsets = list(itertools.accumulate(draw(st.lists(st.integers(1, 50), min_size=len(labels), max_size=len(labels)))))
    together: dict[int, list[int]] = {}
    for offset, label in zip(offsets, labels, strict=True):
        together.setdefault(label, []).append(offset)
    alone = tuple(together.pop(0, []))
    return alone, tuple(sorted(map(tuple, together.values())))


@given(labelled())
def test_encoded_memberships_can_be_decoded(given_labels: tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]) -> None:
    alone, clusters = given_labels
    listed = sorted((*alone, *itertools.chain(*clusters)))
    packed = encode_membership(alone, clusters)
    assert decode_membership(packed, listed) == (alone, clusters)
    smallest = min(map(len, clusters))
    assert len(packed) <= max_membership_bytes(len(listed), len(listed) - len(alone), smallest)
    state = OffsetState(
        listed[0],
        listed[-1] + 1,
        alone,
        unfinished_clusters=clusters,
        released_up_to=listed[0] + 3,
        next_cluster_number=9,
    )
    text = encode(CommittedState(state, FINGERPRINT, 5), "t", 1)
    assert decode(text, "t", 1, listed[0]).state == state


@pytest.mark.parametrize(("k", "delta"), [(2, 1), (2, 800), (3, 865), (5, 100), (10, 1000), (50, 1266)])
def test_partial_clusters_of_the_most_records_fit_with_and_without_a_key(k: int, delta: int) -> None:
    slack = 512
    step = max(1, largest_span(delta, slack, smallest_unfinished=k) // (delta + 1)) if delta > 600 else 1
    places = [place * step for place in range(2 * (delta + 1))]
    count = max(1, len(places) // k)
    unfinished_clusters = tuple(tuple(places[number::count]) for number in range(count))
    held = tuple(range(places[-1] + 1, places[-1] + 1 + slack))
    state = OffsetState(
        0,
        held[-1] + 1,
        held,
        unfinished_clusters=unfinished_clusters,
        released_up_to=places[-1],
        stream_time=1 << 41,
        next_cluster_number=1 << 40,
    )
    commit = CommittedState(state, FINGERPRINT, 1 << 41, 6560)
    for seal in (MetadataCipher("g"), MetadataCipher("g", (b"k" * 32,))):
        text = seal.encode(commit, "t", 0)
        assert len(text) <= LIMIT_BYTES
        assert seal.decode(text, "t", 0, 0).state == state


# ---------------------------------------------------------------- encrypted metadata


ENCRYPTED_PREFIX = "shoal1-aes:"

OLD, NEW = bytes(range(32)), bytes(range(100, 132))
CIPHER = MetadataCipher("g", (NEW,))


def commit(*held: int, at: int = 17) -> CommittedState:
    state = OffsetState(
        held[0], held[-1] + 1, held, next_cluster_number=3, reference=ReferenceRecord(held[0], 1_700_000_000_000)
    )
    return CommittedState(state, FINGERPRINT[:16], at)


def test_encrypting_the_same_state_twice_gives_different_texts() -> None:
    texts = {CIPHER.encode(commit(5, 7), "t", 0) for _ in range(500)}
    assert len({text[len(ENCRYPTED_PREFIX) + 6 :][:15] for text in texts}) == 500, "a nonce came twice"


PLAIN = MetadataCipher("g")


@pytest.mark.parametrize(
    ("writer", "reader", "topic", "partition", "offset"),
    [
        *((seal, seal, *place) for seal in (PLAIN, CIPHER) for place in (("u", 0, 5), ("t", 1, 5), ("t", 0, 6))),
        (CIPHER, replace(CIPHER, group="h"), "t", 0, 5),
    ],
)
def test_metadata_of_another_offset_partition_or_group_are_refused(
    writer: MetadataCipher, reader: MetadataCipher, topic: str, partition: int, offset: int
) -> None:
    text = writer.encode(commit(5, 7), "t", 0)
    with pytest.raises(
        InputError, match=r"belongs to another group, topic, partition or offset.*--import.*--skip-to-end"
    ):
        reader.decode(text, topic, partition, offset)


def test_every_flipped_bit_of_an_encrypted_text_is_detected() -> None:
    text = CIPHER.encode(commit(5, 7), "t", 0)
    for place in range(len(text)):
        for bit in range(7):
            flipped = text[:place] + chr(ord(text[place]) ^ 1 << bit) + text[place + 1 :]
            with pytest.raises(InputError):
                CIPHER.decode(flipped, "t", 0, 5)


def test_another_key_with_the_same_identifier_decrypts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.kafka.metadata._identifier", lambda _: b"name")
    text = MetadataCipher("g", (OLD,)).encode(commit(5, 7), "t", 0)
    with pytest.raises(InputError, match="broken"):
        CIPHER.decode(text, "t", 0, 5)
    assert MetadataCipher("g", (NEW, OLD)).decode(text, "t", 0, 5) == commit(5, 7)


# ---------------------------------------------------------------- ways


@pytest.mark.parametrize(
    ("writer", "reader", "words"),
    [
        ((NEW,), (None,), "encrypted, and no key is given: give it in kafka.metadata_key_file"),
        ((OLD,), (NEW,), "encrypted with a key that is not given"),
        ((OLD,), (NEW, None), "encrypted with a key that is not given"),
        (
            (None,),
            (NEW,),
            "in plain, and a key is given: if it was written before there was a key, add the word 'plain'",
        ),
        ((None,), (NEW, OLD), "in plain, and a key is given"),
    ],
)
def test_metadata_under_a_key_that_is_not_given_are_refused_with_a_remedy(
    writer: tuple[bytes | None, ...], reader: tuple[bytes | None, ...], words: str
) -> None:
    text = MetadataCipher("g", writer).encode(commit(5, 7), "t", 0)
    with pytest.raises(ProgressError) as caught:
        MetadataCipher("g", reader).decode(text, "t", 0, 5)
    assert words in str(caught.value)
    assert str(caught.value).startswith("t-0: ")


@pytest.mark.parametrize(
    "steps",
    [
        [(None,), (None, NEW), (NEW, None), (NEW,)],
        [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)],
        [(NEW,), (NEW, None), (None, NEW), (None,)],
    ],
    ids=["a key comes", "a key is changed", "a key goes"],
)
def test_during_a_rotation_each_worker_reads_what_each_other_writes(steps: list[tuple[bytes | None, ...]]) -> None:
    for before, after in itertools.pairwise(steps):
        for writer, reader in ((before, after), (after, before)):
            text = MetadataCipher("g", writer).encode(commit(5, 7), "t", 0)
            assert MetadataCipher("g", reader).decode(text, "t", 0, 5) == commit(5, 7)
            assert MetadataCipher("g", writer).is_current(text)
            assert MetadataCipher("g", reader).is_current(text) == (writer[0] == reader[0])


# ---------------------------------------------------------------- where a key comes from


def spelt(key: bytes) -> list[str]:
    standard, urlsafe = base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode()
    return [key.hex(), key.hex().upper(), standard, standard.rstrip("="), urlsafe, urlsafe.rstrip("=")]


@given(st.binary(min_size=32, max_size=32).filter(lambda key: len(set(key)) >= 8))
def test_a_key_is_given_as_hex_or_base64(key: bytes) -> None:
    for text in spelt(key):
        settings = KafkaSection.model_validate({"group": "g", "metadata_key": f" {text}\nplain\n"})
        assert MetadataCipher.of(settings) == MetadataCipher("g", (key, None))
        assert text not in repr(settings)
        assert text not in repr(MetadataCipher.of(settings))


BAD = {
    "nothing": "",
    "blank": " \n ",
    "short": NEW.hex()[:-2],
    "long": NEW.hex() + "00",
    "a word": "canary-canary",
    "no random key": "00" * 32,
    "base64 of 31 bytes": base64.b64encode(NEW[:31]).decode(),
    "not ASCII": "ключ" * 8,
    "mixed alphabets": "+_" * 21 + "A",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
@pytest.mark.parametrize("way", ["variable", "file"])
def test_an_invalid_key_is_refused_by_the_name_of_its_setting_and_not_quoted(
    tmp_path: Path, text: str, way: str
) -> None:
    given, name = {"metadata_key": text}, "SHOAL_KAFKA__METADATA_KEY"
    if way == "file":
        path = key_file(tmp_path, text)
        given, name = {"metadata_key_file": str(path)}, "kafka.metadata_key_file"
    with pytest.raises(PolicyError) as caught:
        MetadataCipher.of(KafkaSection.model_validate({"group": "g"} | given))
    assert name in str(caught.value)
    assert "32 random bytes" in str(caught.value)
    assert all(word not in str(caught.value) for word in text.split())


def key_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "canary.key"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o400, 0o640, 0o604, 0o644, 0o660, 0o602])
def test_a_key_file_may_be_read_by_its_owner_and_group_alone(tmp_path: Path, mode: int) -> None:
    settings = KafkaSection(group="g", metadata_key_file=str(key_file(tmp_path, f"{NEW.hex()}\n{OLD.hex()}\n", mode)))
    if mode in {0o400, 0o640}:
        assert MetadataCipher.of(settings) == MetadataCipher("g", (NEW, OLD))
        return
    with pytest.raises(PolicyError, match=r"kafka\.metadata_key_file: the file is open to others.*chmod 640") as caught:
        MetadataCipher.of(settings)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("place", ["missing", "pipe", "directory", "zero\0"])
def test_a_path_that_is_no_file_is_refused_and_not_quoted(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "canary"
    folder.mkdir()
    os.mkfifo(folder / "pipe", 0o600)
    (folder / "directory").mkdir(0o700)
    with pytest.raises(PolicyError, match=r"kafka\.metadata_key_file: ") as caught:
        MetadataCipher.of(KafkaSection(metadata_key_file=str(folder / place)))
    assert "canary" not in str(caught.value)


def test_a_key_and_a_key_file_together_are_refused(tmp_path: Path) -> None:
    settings = KafkaSection.model_validate(
        {"metadata_key": NEW.hex(), "metadata_key_file": str(key_file(tmp_path, OLD.hex()))}
    )
    with pytest.raises(PolicyError, match="keep one of them"):
        MetadataCipher.of(settings)
