"""Encryption of the offset metadata.

A principal that may describe the group can read its metadata. In plain text they show which offsets are incomplete and
so, from one commit to the next, which records were released together. Encrypted, they show only their length, which is
256 bytes at least and grows in steps of 64.

List the keys. The first encrypts; all decrypt. The word ``plain`` in the list stands for metadata without encryption.
So a key can be added, changed and removed while workers run, one step per restart.

Layout: ``shoal1-aes:`` and the base64 of a key identifier (4 bytes), nonce (12, random), ciphertext, tag (16). The
cipher is AES-256-GCM (NIST SP 800-38D). Each topic, partition and group has its own key, derived by HKDF-SHA256
(RFC 5869), so that the limit of 2^32 random nonces holds for each partition alone. The committed offset and the key
identifier are authenticated with the text.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import zlib
from dataclasses import dataclass, field
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from shoal.errors import InputError
from shoal.kafka.credentials import KEY_BYTES, MetadataKey, metadata_keys
from shoal.kafka.metadata import (
    ENCRYPTED_BYTES,
    LIMIT_BYTES,
    PREFIX,
    CommittedState,
    decode,
    encode,
    from_base64,
    invalid_metadata,
    pack,
    unpack,
)
from shoal.policy import KafkaSection

__all__ = ["ENCRYPTED_PREFIX", "NO_ENCRYPTION", "MetadataCipher", "UnreadableError"]

ENCRYPTED_PREFIX = "shoal1-aes:"
"""Prefix of encrypted metadata."""

MIN_BYTES, STEP_BYTES = 256, 64
IDENTIFIER_BYTES, NONCE_BYTES = 4, 12

REMEDY = "give it in kafka.metadata_key_file, SHOAL_KAFKA__METADATA_KEY_FILE or SHOAL_KAFKA__METADATA_KEY"


class UnreadableError(InputError):
    """Metadata that may be valid, but cannot be read with the keys of this process."""

    def __init__(self, where: str, state: str, remedy: str) -> None:
        self.state = state
        super().__init__(f"{where}: the offset metadata is {state}: {remedy}; --skip-to-end would discard it")


@dataclass(frozen=True, slots=True)
class MetadataCipher:
    """Encodes and decodes the offset metadata of one consumer group.

    Guarantee: encrypted metadata are accepted only if a holder of one of the keys wrote them for this group, topic,
    partition and offset. The metadata do not show whether a commit is the latest.

    Parameters
    ----------
    group : str
        The consumer group.
    keys : tuple
        Keys (32 bytes each) or None for plain text. The first encrypts; all decrypt.
    """

    group: str = ""
    keys: tuple[MetadataKey, ...] = field(default=(None,), repr=False)

    @classmethod
    def of(cls, settings: KafkaSection) -> Self:
        """Read the keys from the settings, or from the file that they name; plain text where they name none.

        Raises
        ------
        PolicyError
            The file cannot be read, other users may read it, or it holds no key. The error quotes nothing of it.
        """
        return cls(str(settings.group), metadata_keys(settings))

    def encode(self, commit: CommittedState, topic: str, partition: int) -> str:
        """Return the metadata of a commit; at most 4096 characters.

        Raises
        ------
        InputError
            They do not fit, which `span_limit` prevents.
        """
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
        text = ENCRYPTED_PREFIX + base64.b64encode(identifier + nonce + encrypted).decode("ascii")
        if len(text) > LIMIT_BYTES:  # pragma: no cover - ENCRYPTED_BYTES excludes it
            raise InputError("progress does not fit into the group's metadata: lower stream.delta")
        return text

    def decode(self, text: str, topic: str, partition: int, committed_offset: int) -> CommittedState:
        """Decode what `encode` returned under one of the keys.

        Raises
        ------
        UnreadableError
            The text was written under another key.
        InputError
            It was changed, or written for another group, topic, partition or offset.
        """
        where = f"{topic}-{partition}"
        if text.startswith(ENCRYPTED_PREFIX):
            return self._decrypt(text, topic, partition, committed_offset)
        if text.startswith(PREFIX) and None not in self.keys:
            raise UnreadableError(
                where,
                "in plain, and a key is given",
                "if it was written before there was a key, add the word 'plain' after the key until each partition has "
                "committed",
            )
        return decode(text, topic, partition, committed_offset)

    def is_current(self, text: str) -> bool:
        """Return whether a text that can be read was written under the first key."""
        key = self.keys[0]
        if key is None:
            return text.startswith(PREFIX)
        return text.startswith(ENCRYPTED_PREFIX) and from_base64(text[len(ENCRYPTED_PREFIX) :])[
            :IDENTIFIER_BYTES
        ] == _identifier(key)

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
            raw = from_base64(text[len(ENCRYPTED_PREFIX) :])
        except ValueError:
            raise invalid_metadata(topic, partition) from None
        identifier = raw[:IDENTIFIER_BYTES]
        nonce, encrypted = raw[IDENTIFIER_BYTES:][:NONCE_BYTES], raw[IDENTIFIER_BYTES + NONCE_BYTES :]
        keys = [key for key in self.keys if key is not None]
        known = [key for key in keys if _identifier(key) == identifier]
        if not known:
            state = "encrypted with a key that is not given" if keys else "encrypted, and no key is given"
            raise UnreadableError(where, state, f"{REMEDY} (after the key that encrypts, if there is one)")
        for key in known:
            try:
                authenticated = _authenticated(identifier, context, committed_offset)
                body = _cipher(key, context).decrypt(nonce, encrypted, authenticated)
                return unpack(body.rstrip(b"\0")[:-1], committed_offset)
            except (InvalidTag, ValueError, IndexError):
                continue
        raise invalid_metadata(topic, partition)

    def _context(self, topic: str, partition: int) -> bytes:
        # Neither a topic nor a group contains a line break, so two contexts never have the same bytes.
        return f"shoal progress\n{topic}\n{partition}\n{self.group}".encode()


NO_ENCRYPTION = MetadataCipher()
"""Metadata in plain text, for any group."""


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
