"""The reasons for which a record that does not fit the policy may have been refused.

A reason is one of three words, so a false one could tell two bits of the record. Here each unusable record gets the
reasons that are possible for it: mostly one, and several where one text has several faults, or where the file does not
show a length.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntFlag

from shoal.audit.fields import MOST_CATEGORY_BYTES
from shoal.audit.json_values import json_text
from shoal.audit.parsing import Form, OriginalRecord, Outcome, Record, has_lone_surrogate
from shoal.audit.structure import Dropped
from shoal.policy import MessagePart, Policy, Scale

__all__ = ["Refusal", "RefusalReader"]

MOST_GROWTH = 8
"""A text that is written is at most so many times as long as it was read: escapes, digits of numbers, bytes."""


class Refusal(IntFlag):
    """Possible reasons of one record. `NONE`: the record fits the policy, or is dropped."""

    NONE = 0
    UNDECODABLE = 1
    INVALID = 2
    TOO_LARGE = 4

    @classmethod
    def named(cls, word: str) -> Refusal:
        """Return the reason of a reference or a summary; NONE if it is no reason of a refusal."""
        return next((reason for reason in cls if reason.word == word), cls.NONE)

    @property
    def word(self) -> str:
        """The word of one reason."""
        return str(self.name).lower()


_DECODED = {
    Outcome.UNDECODABLE: Refusal.UNDECODABLE,
    Outcome.NO_RECORD: Refusal.INVALID,
    Outcome.UNCLEAR: Refusal.UNDECODABLE | Refusal.INVALID,
}


class RefusalReader:
    """Finds the possible reasons of unusable records.

    Parameters
    ----------
    policy : Policy
    form : {"csv", "jsonl"}
        Form of the original.
    max_bytes : int
        The limit ``kafka.max_record_bytes``.
    is_measured : bool
        Whether the original shows how many bytes each record had: not so in Parquet.
    """

    def __init__(self, policy: Policy, form: Form, max_bytes: int, *, is_measured: bool) -> None:
        self._form, self._max_bytes, self._is_measured = form, max_bytes, is_measured
        self._is_wrapped = policy.unwrap is not None
        self._parts = {a.name: str(a.source) for a in policy.envelope_attributes}
        nominal = [a for a in policy.clustered if a.scale is Scale.NOMINAL]
        is_in_envelope = [a.source.part is not MessagePart.VALUE for a in nominal]
        self._most_part_bytes = min(MOST_CATEGORY_BYTES, max_bytes) if any(is_in_envelope) else max_bytes
        self._limits = {a.name: MOST_CATEGORY_BYTES for a in nominal}
        self._json_limits = {a.name: a.max_bytes for a in policy.unchanged_fields if a.type == "json"}

    def of(self, original: OriginalRecord, content: Record | Dropped | None) -> Refusal:
        """Return the possible reasons of an unusable record.

        Parameters
        ----------
        original : OriginalRecord
        content : mapping, Dropped or None
            Its fields by the names of their attributes; why it is dropped unless it is too large; None if it has none.
        """
        if isinstance(content, Dropped):
            return Refusal.TOO_LARGE if original.size > self._max_bytes else Refusal.NONE
        found = self._content_reasons(original, content)
        if self._parts:
            # The parts of a message are read one after the other, each with a reason of its own.
            found |= Refusal.INVALID
            if not original.envelope.keys() >= set(self._parts.values()):
                return found | Refusal.UNDECODABLE | Refusal.TOO_LARGE  # it is missing, or of bytes that are no text
            if has_lone_surrogate(list(original.envelope.values())):
                found |= Refusal.UNDECODABLE
        return found | (Refusal.TOO_LARGE if self._may_be_too_large(original, content) else Refusal.NONE)

    def _content_reasons(self, original: OriginalRecord, content: Record | None) -> Refusal:
        if original.record is None or original.outcome is not Outcome.RECORD:
            return _DECODED.get(original.outcome, Refusal.INVALID)
        if has_lone_surrogate(list(original.record.items())):
            return Refusal.UNDECODABLE | Refusal.INVALID
        if content is None and self._is_wrapped:
            return Refusal.UNDECODABLE | Refusal.INVALID  # a payload of null is no message
        return Refusal.INVALID

    def _may_be_too_large(self, original: OriginalRecord, content: Record | None) -> bool:
        is_empty = not original.size and original.outcome is Outcome.UNDECODABLE
        is_unknown = not ((original.size and self._is_measured) or is_empty)
        if self._form == "jsonl" and (is_unknown or original.size > self._max_bytes):
            return True
        if _written_bytes(original.envelope.values()) > self._most_part_bytes:
            return True
        if content is None:
            return False
        fields = {**content, **{name: original.envelope[source] for name, source in self._parts.items()}}
        return MOST_GROWTH * _written_bytes(fields.values()) > self._max_bytes or any(
            growth * _written_bytes([fields[name]]) > limit
            for growth, limits in ((1, self._limits), (MOST_GROWTH, self._json_limits))
            for name, limit in limits.items()
            if name in fields
        )


def _written_bytes(values: Iterable[object]) -> int:
    return sum(len(json_text(value).encode(errors="surrogatepass")) for value in values)
