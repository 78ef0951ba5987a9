from __future__ import annotations

import time

import pytest
from shoal.formats.subjects import normaliser
from shoal.policy import FieldType, NormalizeStep
from shoal.scales.scale import NumberText

pytestmark = pytest.mark.unit

KINDS: list[FieldType] = ["string", "integer", "number", "boolean", "any"]


def subjects_of(kind: FieldType, *values: object) -> list[str]:
    """Normalise values one by one and together; the code paths differ."""
    normalised = normaliser(kind)
    alone = [normalised([value])[0] for value in values]
    assert normalised(values) == alone
    return alone


@pytest.mark.parametrize("kind", ["any", "integer", "number"])
def test_all_texts_of_a_number_are_one_subject(kind: FieldType) -> None:
    spellings = [7, "7", "7 ", "\u00a07\u3000", NumberText("7.0"), NumberText("70e-1"), "007", "+7", "7.0"]
    assert set(subjects_of(kind, *spellings)) == {"7"}


@pytest.mark.parametrize("kind", KINDS)
def test_empty_values_are_not_subjects(kind: FieldType) -> None:
    assert set(subjects_of(kind, None, "", "   ", "\u2003\n", [], {}, ["a"])) == {""}


def test_values_of_another_type_are_not_subjects() -> None:
    assert set(subjects_of("integer", "abc", "7.5", NumberText("7.5"), True, "nan", "７")) == {""}
    assert set(subjects_of("number", "abc", True, "inf", NumberText("1e400"))) == {""}
    assert set(subjects_of("boolean", 1, "yes", NumberText("1.0"))) == {""}
    assert set(subjects_of("string", 7, True, NumberText("7.0"))) == {""}
    assert subjects_of("any", NumberText("-1e400")) == [""]


ALL_STEPS: list[NormalizeStep] = ["nfkc", "casefold", "spaces", "invisible"]
ONE_PERSON = [
    *("Zo\u00eb Weiss", "zo\u00eb WEISS", "Zo\u00eb  Weiss", "Zo\u00eb\u00a0Weiss", "Zo\u00eb We\u200biss"),
    *("Zo\u00eb Wei\u00adss", "\uff3a\uff4f\u00eb \uff37\uff45\uff49\uff53\uff53", "\u2066Zoe\u0308 Wei\u00df\u2069"),
]
"""One name: case, two blanks, a no-break space, zero width, soft hyphen, full width, directions and a sharp s."""


@pytest.mark.parametrize("kind", ["any", "string"])
def test_eight_spellings_are_one_person_with_every_step_and_eight_by_default(kind: FieldType) -> None:
    assert len(set(normaliser(kind)(ONE_PERSON))) == 8
    assert len(set(normaliser(kind, [])(ONE_PERSON))) == 8
    assert set(normaliser(kind, ALL_STEPS)(ONE_PERSON)) == {"zo\u00eb weiss"}


def test_a_subject_of_invisible_characters_only_is_none_with_the_step_and_numbers_stay_numbers() -> None:
    assert normaliser("string", ["invisible"])(["\u200b\u00ad"]) == [""]
    assert normaliser("string")(["\u200b"]) == ["\u200b"]
    assert set(normaliser("any", ["nfkc"])([7, "\uff17", "7.0", NumberText("7.0")])) == {"7"}
    assert normaliser("any", ALL_STEPS)([True, None, 7]) == ["true", "", "7"]
    assert normaliser("string", ALL_STEPS)([7, NumberText("7.0")]) == ["", ""]


@pytest.mark.parametrize("steps", [None, ["nfkc"], ["nfkc", "casefold", "spaces", "invisible"]])
def test_a_subject_with_more_than_30_marks_in_succession_is_none(steps: list[NormalizeStep] | None) -> None:
    # Sorting them takes quadratic time: a message of 230 kB would keep a worker busy for longer than its session.
    marks = "\u0301\u0327" * 16
    normalise = normaliser("string", steps)
    began_s = time.process_time()
    texts = normalise(["a" + marks[:30], "a" + marks[:31], "a" + marks[:30] + "b" + marks[:30], "a" + marks * 10_000])
    assert [text != "" for text in texts] == [True, False, True, False]
    assert time.process_time() - began_s < 2


@pytest.mark.parametrize(
    ("kind", "steps", "present", "missing"),
    [
        ("any", None, ["a", 7, True, "Unknown"], ["unknown", " unknown ", "-1", -1, NumberText("-1.0"), "", None]),
        ("string", None, ["a", "-1.0", "Unknown"], ["unknown", "-1"]),
        ("string", ALL_STEPS, ["a"], ["unknown", "UN\u200bKNOWN", "\uff35nknown"]),
        ("integer", None, [1, "0"], ["-1", -1, "unknown"]),
    ],
)
def test_a_missing_value_is_no_subject(
    kind: FieldType, steps: list[NormalizeStep] | None, present: list[object], missing: list[object]
) -> None:
    normalise = normaliser(kind, steps, ["", "unknown", "-1"])
    assert "" not in normalise(present)
    assert set(normalise(missing)) == {""}
    assert normalise([]) == []
