"""Ask what a draft leaves open, line by line; an empty answer, or the end of the input, keeps what was guessed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TextIO

from shoal.drafts.draft import EVERY_RECORD, Draft
from shoal.drafts.guesses import Guess
from shoal.drafts.reading import Sample

_ROLES = {"q": "quasi_identifier", "c": "confidential", "d": "identifier"}


def ask(sample: Sample, subject: str, source: TextIO, screen: TextIO) -> Draft:
    """Return the draft that the answers make."""
    dialogue = _Dialogue(source, screen)
    draft = Draft.of(sample, subject)
    if not subject:
        draft = Draft.of(sample, dialogue.subject(draft))
    answers = [(guess, dialogue.role(guess)) for guess in draft.guesses if guess.decide]
    # Confirmed, a field that is published unchanged or not at all is decided; what else is open is no matter of a role.
    confirmed = {"confidential", "identifier"}
    decided = {guess.field.name: role for guess, role in answers if role not in {"", guess.role} or role in confirmed}
    draft = draft.with_roles(decided)
    if any(guess.role == "confidential" for guess in draft.guesses):
        draft = replace(draft, diversity=dialogue.diversity())
    k = dialogue.number("k, the fewest people in a cluster", draft.k, 2)
    delta = max(draft.delta, k - 1)
    return draft.with_settings(k, dialogue.number("delta, how many later records one waits for", delta, k - 1))


class _Dialogue:
    """Questions on a screen, and lines of answers."""

    def __init__(self, source: TextIO, screen: TextIO) -> None:
        self._source, self._screen = source, screen

    def subject(self, draft: Draft) -> str:
        """Ask who the person is; nothing if it stays open."""
        names = [guess.field.name for guess in draft.guesses]
        self._say("Who is the person that k counts?")
        for number, field in enumerate(draft.candidates, 1):
            self._say(f"  {number}: {field.name} ({len(field.counts):,} different in {draft.sample.rows:,} rows)")
        self._say(f"  {EVERY_RECORD}: every row is another person; or another field by its name; Enter leaves it open")
        for answer in self._answers():
            if answer.isdigit() and 1 <= int(answer) <= len(draft.candidates):
                return draft.candidates[int(answer) - 1].name
            if answer in {"", EVERY_RECORD, *names}:
                return answer
            self._say("  no such field")
        return ""

    def role(self, guess: Guess) -> str:
        """Ask for the role of a field; nothing if the input has ended."""
        self._say(f"{guess.field.name}: {guess.reason}. {guess.decide}")
        self._say(f"  q: a quasi-identifier; c: confidential, published unchanged; d: dropped; Enter: {guess.role}")
        for answer in self._answers():
            if not answer or answer[0].lower() in _ROLES:
                return _ROLES[answer[0].lower()] if answer else guess.role
            self._say("  q, c or d")
        return ""

    def diversity(self) -> int:
        """Ask how many different confidential values a cluster must have; 0 if it stays open."""
        self._say(
            "l, the fewest different values of a confidential field in a cluster: k does not hide a value that all"
        )
        self._say("  in it share. 2 or more keeps this, at a loss; 1: no such promise; Enter leaves it open")
        for answer in self._answers():
            if not answer or (answer.isascii() and answer.isdigit() and 1 <= int(answer) <= 1_000):  # noqa: PLR2004
                return int(answer or 0)
            self._say("  a whole number of at least 1")
        return 0

    def number(self, what: str, usual: int, least: int) -> int:
        """Ask for a whole number."""
        self._say(f"{what}; Enter: {usual}")
        for answer in self._answers():
            if not answer or (answer.isascii() and answer.isdigit() and least <= int(answer) <= 10_000_000):  # noqa: PLR2004
                return int(answer) if answer else usual
            self._say(f"  a whole number of at least {least}")
        return usual

    def _answers(self) -> Iterator[str]:
        while line := self._source.readline():
            yield line.strip()

    def _say(self, text: str) -> None:
        print(text, file=self._screen, flush=True)
