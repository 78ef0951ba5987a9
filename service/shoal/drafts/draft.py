"""A draft of a policy: who the person is, what each field may be, and the settings, with reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from shoal.drafts.fields import Field, describe, find_missing
from shoal.drafts.guesses import Guess, guess, rows_in_words
from shoal.drafts.names import IDENTIFIERS, Kind
from shoal.drafts.reading import Sample
from shoal.errors import ConfigError
from shoal.policy import FieldPath, did_you_mean

EVERY_RECORD: Final = "every_record"
_MANY_PEOPLE, _LARGE_K, _SMALL_K = 500, 10, 5
_MOST_CANDIDATES = 3
_MANY_KEYS = 5
"""Rare keys from which an object is a map, whose keys are values."""
_WAIT = 20
"""Delta for each k: beyond it, waiting keeps little more."""


@dataclass(frozen=True)
class Draft:
    """A draft. ``subject`` is the name of a field or `EVERY_RECORD`, and empty as long as nobody has said it."""

    sample: Sample
    missing: Sequence[str]
    subject: str
    people: int
    k: int
    delta: int
    guesses: Sequence[Guess]
    candidates: Sequence[Field]
    """The fields that may name the person, the likeliest first."""
    hidden: int = 0
    """How many fields are dropped and not named, because fewer than k people have them: a name can be a value."""
    diversity: int = 0
    """Different confidential values that a cluster needs; 1: it was decided that none are, 0: nobody has decided."""

    @classmethod
    def of(cls, sample: Sample, subject: str = "") -> Self:
        """Return the draft of a sample; ConfigError if it has no field of the name of the subject."""
        missing = find_missing(sample)
        fields = [describe(sample, path, missing, None) for path in sample.columns]
        names = [field.name for field in fields]
        if subject and subject != EVERY_RECORD and subject not in names:
            shared = [field.name for field in fields if not field.absent]
            known = (
                did_you_mean(subject, [*shared, EVERY_RECORD]) or f"give {EVERY_RECORD} or one of {', '.join(shared)}"
            )
            raise ConfigError(f"--subject: {sample.name} has no such field; {known}")
        # Until the person is known, the field that leaves the fewest people counts.
        fewest = min(_candidates(fields), key=lambda field: len(field.counts), default=None)
        person = fields[names.index(subject)] if subject in names else None if subject else fewest
        is_counted = person is not None and (subject or person.kind is Kind.PERSON)
        people = len(person.counts) if person is not None and is_counted else sample.rows
        k = _LARGE_K if people >= _MANY_PEOPLE else _SMALL_K
        persons = None if person is None else sample.columns[person.path]
        if persons is not None:
            fields = [describe(sample, path, missing, persons) for path in sample.columns]
        if maps := _maps([field.path for field in fields if _is_rare(field, k)]):
            sample = sample.closed(maps)
            fields = [describe(sample, path, missing, persons) for path in sample.columns]
        fields = [replace(field, has_people=bool(subject)) for field in fields]
        named = [field for field in fields if not _is_rare(field, k)]
        guesses = [_subject(field, k) if field.name == subject else guess(field, k) for field in named]
        hidden = len(fields) - len(named)
        return cls(sample, missing, subject, people, k, _WAIT * k, guesses, _candidates(named), hidden)

    def with_roles(self, roles: Mapping[str, str]) -> Self:
        """Return the draft with these roles, by field."""
        guesses = [
            guess(one.field, self.k, role=roles[one.field.name]) if one.field.name in roles else one
            for one in self.guesses
        ]
        return replace(self, guesses=guesses)

    def with_settings(self, k: int, delta: int) -> Self:
        """Return the draft with this k and delta; bounds and orders follow k."""
        named = [one for one in self.guesses if not _is_rare(one.field, k)]
        guesses = [guess(one.field, k, role=one.role) if one.role == "quasi_identifier" else one for one in named]
        hidden = self.hidden + len(self.guesses) - len(named)
        return replace(self, k=k, delta=delta, guesses=guesses, hidden=hidden)

    def summary(self, policy: str, source: str) -> str:
        """Return a line on what was seen and what comes next."""
        roles = Counter("subject" if "subject" in one.keys else one.role for one in self.guesses)
        names = {"quasi_identifier": "published as one value per cluster", "confidential": "published unchanged"}
        said = ", ".join(f"{roles[role]} {words}" for role, words in names.items() if roles[role])
        dropped = roles["identifier"] + roles["subject"]
        opened = sum(bool(one.decide) for one in self.guesses)
        then = (
            f"shoal check {'POLICY' if policy == '-' else policy} -i {source}"
            if self.subject
            else "say who the person is: --subject"
        )
        more = f", to decide on (DECIDE): {opened}" if opened else ""
        return f"{self.sample.rows:,} rows: {said or 'nothing published'}, {dropped} dropped{more}; next: {then}"


def _subject(field: Field, k: int) -> Guess:
    """Return the guess of the field that names the person."""
    is_name = field.kind in {Kind.NAME, Kind.CONTACT, Kind.ADDRESS}
    steps = ["nfkc", "casefold", "spaces", "invisible"] if is_name else []
    reason = f"the person, as you said: {len(field.counts):,} different"
    if field.missing or field.absent or field.nested:
        reason += f"; {rows_in_words(field.missing + field.absent + field.nested, k)} have none and are refused"
    if not field.has_texts and field.types & {bool, float}:
        reason += "; no id: give another subject"
    words = "spellings of a name are one person" if is_name else "letters and blanks count, as in ids"
    return Guess(field, "identifier", {"subject": True, "normalize": steps}, f"{reason}; {words}")


def _is_rare(field: Field, k: int) -> bool:
    """Return whether some records lack the field, and fewer than k people have it: its name can be a value."""
    return field.absent > 0 and field.owners < k


def _maps(rare: Sequence[FieldPath]) -> set[FieldPath]:
    """Return the objects that are maps: many of their keys are rare."""
    keys = {path[:depth] for path in rare for depth in range(2, len(path) + 1)}
    found = Counter(key[:-1] for key in keys)
    return {path for path, count in found.items() if count >= _MANY_KEYS}


def _candidates(fields: Sequence[Field]) -> list[Field]:
    """Return the fields that may name the person."""
    order = (Kind.PERSON, Kind.NUMBER, Kind.ID, Kind.CONTACT, Kind.NAME)
    found = [
        field
        for field in fields
        if field.kind in IDENTIFIERS and field.kind in order and len(field.counts) > 1 and not field.nested
    ]
    usable = [field for field in found if field.kind is Kind.PERSON or field.share_distinct > 0.01]  # noqa: PLR2004
    return sorted(usable, key=lambda field: (order.index(field.kind or Kind.NAME), field.missing))[:_MOST_CANDIDATES]
