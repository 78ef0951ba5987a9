"""Encrypted offset metadata: round trips, what they are bound to, how keys are given, rotated and lost."""

from __future__ import annotations

import base64
import itertools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.errors import InputError, PolicyError
from shoal.kafka.metadata import NO_ENCRYPTION, CommittedState, MetadataCipher, encode, largest_span
from shoal.kafka.offsets import OffsetState, ProgressError, ReferenceRecord
from shoal.policy import KafkaSection

pytestmark = pytest.mark.unit

LIMIT_BYTES = 4096
ENCRYPTED_PREFIX = "shoal1-aes:"
MAX_FUTURE_TIMESTAMPED = 64

FINGERPRINT = "0123456789abcdef" * 4
OLD, NEW = bytes(range(32)), bytes(range(100, 132))
CIPHER = MetadataCipher("g", (NEW,))


def commit(*held: int, at: int = 17) -> CommittedState:
    state = OffsetState(
        held[0], held[-1] + 1, held, next_cluster_number=3, reference=ReferenceRecord(held[0], 1_700_000_000_000)
    )
    return CommittedState(state, FINGERPRINT[:16], at)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=300), st.integers(0, 2**40))
def test_encrypted_metadata_can_be_decrypted(gaps: list[int], start: int) -> None:
    held = tuple(start + sum(gaps[:i]) for i in range(len(gaps)))
    text = CIPHER.encode(commit(*held), "t", 5)
    assert text.startswith(ENCRYPTED_PREFIX)
    assert CIPHER.decode(text, "t", 5, start) == commit(*held)


def test_encrypting_the_same_state_twice_gives_different_texts() -> None:
    texts = {CIPHER.encode(commit(5, 7), "t", 0) for _ in range(500)}
    assert len({text[len(ENCRYPTED_PREFIX) + 6 :][:15] for text in texts}) == 500, "a nonce came twice"


@pytest.mark.parametrize(
    ("seal", "topic", "partition", "offset"),
    [
        (CIPHER, "u", 0, 5),
        (CIPHER, "t", 1, 5),
        (CIPHER, "t", 0, 6),
        (replace(CIPHER, group="h"), "t", 0, 5),
    ],
    ids=["topic", "partition", "offset", "group"],
)
def test_metadata_encrypted_for_another_offset_or_partition_are_refused(
    seal: MetadataCipher, topic: str, partition: int, offset: int
) -> None:
    text = CIPHER.encode(commit(5, 7), "t", 0)
    with pytest.raises(
        InputError, match=r"belongs to another group, topic, partition or offset.*--import.*--skip-to-end"
    ):
        seal.decode(text, topic, partition, offset)


def test_every_flipped_bit_is_detected() -> None:
    text = CIPHER.encode(commit(5, 7), "t", 0)
    for place in range(len(text)):
        for bit in range(7):
            flipped = text[:place] + chr(ord(text[place]) ^ 1 << bit) + text[place + 1 :]
            with pytest.raises(InputError):
                CIPHER.decode(flipped, "t", 0, 5)


@pytest.mark.parametrize("cut", [0, 3, 11, 12, 40, 60, 100, -4, -1])
def test_a_truncated_text_is_refused(cut: int) -> None:
    with pytest.raises(InputError):
        CIPHER.decode(CIPHER.encode(commit(5, 7), "t", 0)[:cut], "t", 0, 5)


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


def test_plain_metadata_are_those_of_encode() -> None:
    assert NO_ENCRYPTION.encode(commit(5, 7), "t", 0) == encode(commit(5, 7), "t", 0)
    assert MetadataCipher.of(KafkaSection(group="g")) == MetadataCipher("g", (None,))


# ---------------------------------------------------------------- sizes


def test_the_largest_delta_named_in_the_error_fits_and_the_next_does_not() -> None:
    with pytest.raises(InputError) as caught:
        largest_span(25_000, 512)
    largest = int(str(caught.value).rsplit(" ", 1)[1])
    assert largest > 20_000
    assert largest_span(largest, 512)
    with pytest.raises(InputError):
        largest_span(largest + 8, 512)


def test_metadata_that_are_too_long_are_an_error() -> None:
    with pytest.raises(InputError, match="does not fit"):
        CIPHER.encode(commit(*range(0, 90_000, 3)), "t", 0)


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


def test_every_invalid_key_is_reported_by_its_number() -> None:
    with pytest.raises(PolicyError) as caught:
        MetadataCipher.of(KafkaSection.model_validate({"metadata_key": f"{NEW.hex()} canary plain canary2"}))
    assert [fault.message.split(" is")[0] for fault in caught.value.faults] == ["word 2", "word 4"]


def key_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "canary.key"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o440, 0o640])
def test_a_key_file_may_be_read_by_its_owner_and_group(tmp_path: Path, mode: int) -> None:
    path = key_file(tmp_path, f"{NEW.hex()}\n{OLD.hex()}\n", mode)
    assert MetadataCipher.of(KafkaSection(group="g", metadata_key_file=str(path))) == MetadataCipher("g", (NEW, OLD))


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o660, 0o602, 0o666, 0o777])
def test_a_key_file_open_to_other_users_is_refused(tmp_path: Path, mode: int) -> None:
    path = key_file(tmp_path, NEW.hex(), mode)
    with pytest.raises(PolicyError, match=r"kafka\.metadata_key_file: the file is open to others.*chmod 640") as caught:
        MetadataCipher.of(KafkaSection(metadata_key_file=str(path)))
    assert "canary" not in str(caught.value)


def missing(folder: Path) -> str:
    return str(folder / "canary")


def pipe(folder: Path) -> str:
    os.mkfifo(folder / "canary", 0o600)
    return str(folder / "canary")


def directory(folder: Path) -> str:
    (folder / "canary").mkdir(0o700)
    return str(folder / "canary")


def zero(_: Path) -> str:
    return "canary\0"


@pytest.mark.parametrize("place", [missing, pipe, directory, zero])
def test_a_path_that_is_no_file_is_refused_and_not_quoted(tmp_path: Path, place: Callable[[Path], str]) -> None:
    with pytest.raises(PolicyError, match=r"kafka\.metadata_key_file: ") as caught:
        MetadataCipher.of(KafkaSection(metadata_key_file=place(tmp_path)))
    assert "canary" not in str(caught.value)


def test_a_key_and_a_key_file_together_are_refused(tmp_path: Path) -> None:
    settings = KafkaSection.model_validate(
        {"metadata_key": NEW.hex(), "metadata_key_file": str(key_file(tmp_path, OLD.hex()))}
    )
    with pytest.raises(PolicyError, match="keep one of them"):
        MetadataCipher.of(settings)
