"""What `shoal check` advises on attributes that are not numbers, and on the form of messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from shoal.policy import advise
from support.policy_files import load

pytestmark = pytest.mark.unit

TEXT = """\
subject: every_record
attributes:
  age: {{role: quasi_identifier, bounds: [0, 110]}}
  {attribute}
privacy: {{k: 2}}
stream: {{delta: 9}}
{more}
"""
LEAVES = ", ".join(f"c{n}" for n in range(21))


def advice(folder: Path, attribute: str, more: str = "") -> list[str]:
    told = list(advise(load(TEXT.format(attribute=attribute, more=more), folder)))
    assert told[-1].startswith("subject: every_record"), "of every policy here"
    return [sentence for sentence in told[:-1] if "k alone does not protect" not in sentence]


@pytest.mark.parametrize(
    ("attribute", "more", "words"),
    [
        ("seen: {role: quasi_identifier, scale: time}", "", ""),
        ("job: {role: quasi_identifier, scale: nominal, taxonomy: {A: [a, b], B: [c]}}", "", ""),
        (
            "job: {role: quasi_identifier, scale: nominal}",
            "",
            "attributes.job: a cluster publishes a category that one of its people has (the most frequent one)",
        ),
        ("job: {role: quasi_identifier, scale: ordinal, order: [a, b]}", "", "has (the median), not a mean of all"),
        (
            "job: {role: quasi_identifier, scale: nominal, taxonomy: {A: [a, b], B: [c]}, publish: median}",
            "",
            "attributes.job: a cluster publishes a category that one of its people has (the median)",
        ),
        (
            f"job: {{role: quasi_identifier, scale: nominal, taxonomy: [{LEAVES}]}}",
            "",
            "attributes.job: its 21 categories are all equally far",
        ),
        (f"a: {{role: quasi_identifier, scale: nominal, taxonomy: [{LEAVES.removesuffix(', c20')}]}}", "", ""),
        (
            "a: {role: quasi_identifier, scale: nominal}\n  b: {role: quasi_identifier, scale: nominal}",
            "",
            "attributes.a, attributes.b: a cluster publishes a",
        ),
        ("p.job: {role: identifier}", "", "attributes.p.job: the name of one field, dots included"),
        ("p.job: {role: identifier}", "", "say so with from: value.p.job"),
        ("p.job: {role: identifier, from: value.p.job}", "", ""),
        ("p.job: {role: identifier, from: key}", "", ""),
        ("job: {role: confidential, type: json}", "", "attributes.job: published whole"),
        ("job: {role: identifier}", 'missing_values: ["?"]', "missing_values: a record with one of them"),
        ("job: {role: identifier}", 'missing_values: [""]', ""),
        (
            "job: {role: quasi_identifier, scale: nominal, taxonomy: {A: [a, b], B: [c]}, missing: group}",
            'missing_values: ["?"]',
            "so an empty text or cell is no missing value of attributes.job: it is",
        ),
        (
            "job: {role: quasi_identifier, scale: time, bounds: [2020-01-01, 2021-01-01], missing: mean}",
            'missing_values: ["?"]',
            "",
        ),
    ],
)
def test_advice_names_the_attribute_and_the_remedy(attribute: str, more: str, words: str, tmp_path: Path) -> None:
    told = advice(tmp_path, attribute, more)
    assert len(told) == (1 if words else 0)
    assert words in "".join(told)


TREE = "scale: nominal, taxonomy: {A: [a, b], B: [c]}, missing: group"


@pytest.mark.parametrize(
    ("content", "is_told"),
    [
        ("nurse;Health\ndoctor;Cure\njudge;Law\n", True),
        ("job;field\nnurse;Health\njudge;Law\n", False),
        ("beruf;feld;alle\nnurse;Health;*\njudge;Law;*\n", False),
    ],
)
def test_a_first_line_that_may_be_a_leaf_is_told(content: str, *, is_told: bool, tmp_path: Path) -> None:
    (tmp_path / "job.csv").write_text(content)
    told = advice(tmp_path, "job: {role: quasi_identifier, scale: nominal, taxonomy: job.csv}")
    assert len(told) == is_told
    assert not told or "the first line of its taxonomy is taken as the header" in told[0]
