"""Spellings of a subject: the engine and the judge, which share no code, agree on every text."""

from __future__ import annotations

import itertools
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.audit.fields import RecordReader
from shoal.formats.subjects import fold, normaliser
from shoal.policy import NormalizeStep
from support.making import policy_of, quasi

pytestmark = pytest.mark.property

STEPS: list[NormalizeStep] = ["nfkc", "casefold", "spaces", "invisible"]
SETS = [chosen for size in range(5) for chosen in itertools.combinations(STEPS, size)]
READERS = {
    (kind, chosen): RecordReader(
        policy_of(
            {
                "who": {"role": "identifier", "subject": True, "type": kind, "normalize": list(chosen)},
                "age": quasi(0, 9),
            }
        ),
        "csv",
        "csv",
    )
    for kind in ("string", "any")
    for chosen in SETS
}
ODD = (
    "\u00df\u1e9e\u0130\u0131\u017f\u212a\u0345\u03b1\u1fb3\u1fbc\u03c2\ufb01"
    "\uff21\uff17\u00a0\u3000\u200b\u00ad\ufeff\u034f\u3164 \taA7.e"
)
RUNS = st.lists(
    st.tuples(st.sampled_from("\u0301\u0327\u0345\u200b\u034f\u00e9\u1fb3\ufc5ea "), st.integers(1, 33)), max_size=4
)
"""Marks that follow each other; 30 are allowed."""
SHORT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.text(st.sampled_from(ODD), max_size=8)
TEXTS = SHORT | RUNS.map(lambda runs: "".join(letter * count for letter, count in runs))


UNCHANGED = {"Cs", "Co", "Cn"}
"""Categories of code points that no text holds, or to which Unicode gives no meaning."""


def judged(kind: str, chosen: tuple[NormalizeStep, ...], text: str) -> str | None:
    found = READERS[kind, chosen].read({"who": text, "age": "1"}, {})
    return None if found is None else found.subject


@given(TEXTS, TEXTS, st.sampled_from(SETS))
def test_engine_and_judge_agree_on_the_spellings_of_a_person(
    one: str, other: str, chosen: tuple[NormalizeStep, ...]
) -> None:
    found = normaliser("string", chosen)([one, other])
    assert [judged("string", chosen, text) or "" for text in (one, other)] == found
    first, second = normaliser("any", chosen)([one, other])
    assert (first == second) == (judged("any", chosen, one) == judged("any", chosen, other))
    assert (first == "") == (judged("any", chosen, one) is None)


@given(SHORT, st.sampled_from(SETS))
def test_a_normalised_text_is_its_own_normal_form(text: str, chosen: tuple[NormalizeStep, ...]) -> None:
    normalised = normaliser("string", chosen)([text])
    assert normaliser("string", chosen)(normalised) == normalised


def test_engine_and_judge_agree_on_every_character_that_a_step_could_change() -> None:
    every = map(chr, (*range(0x3400), *range(0xA000, 0xAC00), *range(0xD7A4, 0x20000), *range(0xE0000, 0xE1000)))
    letters = [letter for letter in every if unicodedata.category(letter) not in UNCHANGED]
    folded = fold(STEPS)
    texts = normaliser("string", STEPS)(letters)
    differing = [
        letter
        for letter, text in zip(letters, texts, strict=True)
        if (judged("string", tuple(STEPS), letter) or "") != text
    ]
    assert differing == []
    assert sum(folded(letter) == "" for letter in letters) > 400
