"""How progress is written beside an offset: in plain, or encrypted for those who hold a key.

Whoever may describe the group reads its metadata, and in plain it tells which offsets are held and so, from one
commit to the next, which of them left together. Under a key it tells no more than its length, which is the same
for all that fits 256 bytes and then moves in steps of 64.

A *way* of writing is a key or the word ``plain``. The ways are given as a list: the first one writes, all of them
are read. So a key is brought in, changed and taken out again while workers run, and nothing is read that nobody
has said to be readable.

Layout: ``shoal1-aes:`` and base64 of a name of the key (4 bytes), nonce (12, random), ciphertext, tag (16). The
cipher is AES-256-GCM (NIST SP 800-38D). Each place (topic, partition, group) has a key of its own, derived by
HKDF-SHA256 (RFC 5869), so that the limit of 2^32 random nonces holds for each partition alone; the offset and the
head of the message are authenticated with it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from shoal.errors import Fault, InputError, PolicyError
from shoal.kafka.offset_metadata import (
    LIMIT_BYTES,
    PREFIX,
    SEALED_BYTES,
    CommittedState,
    broken,
    decode,
    encode,
    from_base64,
    pack,
)
from shoal.kafka.offset_metadata import unpack as unpack_commit
from shoal.policy import KafkaSection

__all__ = ["PLAIN", "SEALED_PREFIX", "MetadataCipher", "UnreadableError"]

SEALED_PREFIX = "shoal1-aes:"
"""What encrypted progress begins with."""

PLAIN_WORD = "plain"
LEAST_BYTES, STEP_BYTES = 256, 64
KEY_BYTES, NAME_BYTES, NONCE_BYTES, TAG_BYTES = 32, 4, 12, 16
LARGEST_FILE = 1 << 16
FEWEST_VALUES = 8
"""Different bytes of a key: of 32 random ones there are always more."""

REMEDY = "give it in kafka.metadata_key_file, SHOAL_KAFKA__METADATA_KEY_FILE or SHOAL_KAFKA__METADATA_KEY"

Way: TypeAlias = bytes | None
"""A key, or None for plain text."""


class UnreadableError(InputError):
    """Progress that may be sound, written in a way that this process was not given."""

    def __init__(self, where: str, state: str, remedy: str) -> None:
        self.state = state
        super().__init__(
            f"{where}: the progress beside the committed offset is {state}: {remedy}; --skip-to-end would give it up"
        )


@dataclass(frozen=True, slots=True)
class MetadataCipher:
    """The ways in which one group's progress is written and read.

    Guarantee: a text is read only as it was written, by a holder of one of the keys, for this group, topic,
    partition and offset. That an older one was put back in its place cannot be seen in it.

    Parameters
    ----------
    group : str
        The consumer group.
    ways : tuple
        Keys (32 bytes each) or None for plain text: the first one writes, all of them are read.
    """

    group: str = ""
    ways: tuple[Way, ...] = field(default=(None,), repr=False)

    @classmethod
    def of(cls, settings: KafkaSection) -> Self:
        """Read the ways from the settings, or from the file that they name; plain where they name none.

        Raises
        ------
        PolicyError
            The file cannot be read, others may read it, or there is no key in it; never with a word of it.
        """
        given = settings.metadata_key
        if given is not None and settings.metadata_key_file is not None:
            words = "given beside kafka.metadata_key_file: keep one of them"
            raise PolicyError([Fault(("SHOAL_KAFKA__METADATA_KEY",), words)], "settings")
        if given is not None:
            return cls(str(settings.group), _keys(given.get_secret_value(), "SHOAL_KAFKA__METADATA_KEY"))
        if settings.metadata_key_file is not None:
            return cls(str(settings.group), _keys(_file(Path(settings.metadata_key_file)), "kafka.metadata_key_file"))
        return cls(str(settings.group))

    def encode(self, commit: CommittedState, topic: str, partition: int) -> str:
        """Text to commit beside ``commit.snapshot.watermark``; at most 4096 characters.

        Raises
        ------
        InputError
            If it does not fit, which `largest_span` prevents.
        """
        key = self.ways[0]
        if key is None:
            return encode(commit, topic, partition)
        body = pack(commit) + b"\x80"
        body += bytes(max(LEAST_BYTES - len(body), -len(body) % STEP_BYTES))
        if len(body) > SEALED_BYTES:
            raise InputError("progress does not fit into the group's metadata: lower stream.delta")
        head, nonce = _name(key), os.urandom(NONCE_BYTES)
        place = self._place(topic, partition)
        sealed = _cipher(key, place).encrypt(nonce, body, _beside(head, place, commit.snapshot.watermark))
        text = SEALED_PREFIX + base64.b64encode(head + nonce + sealed).decode("ascii")
        if len(text) > LIMIT_BYTES:  # pragma: no cover - SEALED_BYTES is chosen so
            raise InputError("progress does not fit into the group's metadata: lower stream.delta")
        return text

    def decode(self, text: str, topic: str, partition: int, watermark: int) -> CommittedState:
        """Read back what `encode` wrote in one of the ways.

        Raises
        ------
        UnreadableError
            It was written in another way.
        InputError
            It is broken, or was written for another place.
        """
        where = f"{topic}-{partition}"
        if text.startswith(SEALED_PREFIX):
            return self._unseal(text, topic, partition, watermark)
        if text.startswith(PREFIX) and None not in self.ways:
            raise UnreadableError(
                where,
                "in plain, and a key is given",
                "if it is from before the key, put the word 'plain' behind the key until each partition has committed",
            )
        return decode(text, topic, partition, watermark)

    def is_current(self, text: str) -> bool:
        """Whether a text that can be read is written in the way that writes now."""
        key = self.ways[0]
        if key is None:
            return text.startswith(PREFIX)
        return text.startswith(SEALED_PREFIX) and from_base64(text[len(SEALED_PREFIX) :])[:NAME_BYTES] == _name(key)

    def _unseal(self, text: str, topic: str, partition: int, watermark: int) -> CommittedState:
        where, place = f"{topic}-{partition}", self._place(topic, partition)
        try:
            raw = from_base64(text[len(SEALED_PREFIX) :])
        except ValueError:
            raise broken(topic, partition) from None
        head, nonce, sealed = raw[:NAME_BYTES], raw[NAME_BYTES:][:NONCE_BYTES], raw[NAME_BYTES + NONCE_BYTES :]
        keys = [key for key in self.ways if key is not None]
        known = [key for key in keys if _name(key) == head]
        if not known:
            state = "encrypted with a key that is not given" if keys else "encrypted, and no key is given"
            raise UnreadableError(where, state, f"{REMEDY} (behind the key that writes, if there is one)")
        for key in known:
            try:
                body = _cipher(key, place).decrypt(nonce, sealed, _beside(head, place, watermark))
                return unpack_commit(body.rstrip(b"\0")[:-1], watermark)
            except (InvalidTag, ValueError, IndexError):
                continue
        raise broken(topic, partition)

    def _place(self, topic: str, partition: int) -> bytes:
        # Neither topics nor groups hold a line break, so that two places never look alike.
        return f"shoal progress\n{topic}\n{partition}\n{self.group}".encode()


PLAIN = MetadataCipher()
"""Progress in plain, of whatever group."""


def _cipher(key: bytes, place: bytes) -> AESGCM:
    return AESGCM(HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=place).derive(key))


def _beside(head: bytes, place: bytes, watermark: int) -> bytes:
    """What is authenticated beside the text: its head and where it stands."""
    return SEALED_PREFIX.encode() + head + place + f"\n{watermark}".encode()


def _name(key: bytes) -> bytes:
    """Tell keys apart without telling them."""
    return hmac.digest(key, b"shoal name of a key", hashlib.sha256)[:NAME_BYTES]


def _keys(text: str, where: str) -> tuple[Way, ...]:
    path = tuple(where.split("."))
    words = text.split()
    if not words:
        raise PolicyError([Fault(path, "holds no key: 32 random bytes, as hex or base64")], "settings")
    faults, ways = [], []
    for number, word in enumerate(words, 1):
        way = None if word == PLAIN_WORD else _key(word)
        if way == b"":
            faults.append(
                Fault(path, f"word {number} is no key: 32 random bytes as hex or base64 (or the word 'plain')")
            )
        ways.append(way)
    if faults:
        raise PolicyError(faults, "settings")
    return tuple(ways)


def _key(word: str) -> bytes:
    """Read one key; nothing if it is none."""
    try:
        if re.fullmatch(r"[0-9a-fA-F]{64}", word):
            key = bytes.fromhex(word)
        else:
            key = base64.b64decode(
                word + "=" * (-len(word) % 4), altchars=b"-_" if set(word) & set("-_") else None, validate=True
            )
    except ValueError:
        return b""
    return key if len(key) == KEY_BYTES and len(set(key)) >= FEWEST_VALUES else b""


def _file(path: Path) -> str:
    """Text of the key file. Its path is not told either: it may be a key that was put into the wrong setting."""
    fault = "holds no key: 32 random bytes, as hex or base64"
    try:
        # What is no file, such as a pipe that nobody writes to, must not be waited for.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            about = os.fstat(file.fileno())
            # The group may read it: that is how secrets are mounted for a process that is not root.
            is_open = about.st_mode & (stat.S_IRWXO | stat.S_IWGRP)
            if stat.S_ISREG(about.st_mode) and not is_open:
                return file.read(LARGEST_FILE).decode("ascii")
            fault = (
                "the file is open to others: take their rights away (chmod 640, or 600)" if is_open else "is no file"
            )
    except OSError as error:
        fault = f"the file cannot be read: {error.strerror}"
    except ValueError:
        pass
    raise PolicyError([Fault(("kafka", "metadata_key_file"), fault)], "settings")
