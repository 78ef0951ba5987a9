"""What `shoal check` advises on attributes that are not numbers, and on the form of messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shoal.policy import advise, left_open
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


# ---------------------------------------------------------------- attacks that stay possible

PERSON = {"who": {"role": "identifier", "subject": True, "normalize": []}}
AGE = {"age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True, "resolution": 1}}
ILL = {"ill": {"role": "confidential", "type": "string"}}
STREAM = {"stream": {"delta": 30}}
ORDERED = {"delta": 30, "release": "ordered"}
ALWAYS = (
    "privacy.per_subject (not set): a person with several records is in several clusters",
    "privacy.k 3, max_share 0.5: who knows the cluster of a person names one of the person's rows with a chance of 1",
)
ARRIVAL = "stream.delta 30: who knows when the record of a person arrived can guess its cluster"
BLOCK = "stream.delta 30: who knows when the record of a person arrived knows which clusters"


def of_quasi(**more: Any) -> dict[str, Any]:
    return {"attributes": PERSON | AGE | {"x": {"role": "quasi_identifier", **more}}}


def of_values(**privacy: Any) -> dict[str, Any]:
    return {"attributes": PERSON | AGE | ILL, "privacy": {"k": 3, **privacy}}


ALL_EQUAL = "ill: all people of a cluster can have the same value"
UNCHANGED = "ill: published unchanged; who knows a value of a person finds all rows that have it"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, set()),
        ({"privacy": {"k": 2, "max_share": 1}}, {"privacy.k 2, max_share 1: who knows"}),
        (STREAM, {ARRIVAL}),
        (
            STREAM | {"steering": {"position": 0.01}},
            {"stream.delta 30, steering.position: who knows when the record of"},
        ),
        ({"stream": {"delta": 30, "rule": "block"}}, {BLOCK}),
        ({"stream": ORDERED}, {"stream.release ordered: the place of a row shows when"}),
        ({"stream": ORDERED | {"reveal_order": True}}, {"stream.reveal_order: who knows when"}),
        ({"table": {"keep_order": True}}, {"table.keep_order: the number of a row shows whose it is"}),
        ({"subject": "every_record", "attributes": AGE}, {"subject every_record: a record that is sent k times is a"}),
        (
            STREAM | {"privacy": {"k": 3, "per_subject": {"max": 2, "window": 50}}},
            {"privacy.per_subject: up to 2 of a person's records are released from each 50 offsets", ARRIVAL},
        ),
        (of_values(), {ALL_EQUAL, UNCHANGED}),
        (
            of_values(max_value_share=0.6),
            {UNCHANGED, "ill (privacy.max_value_share): a guessed value is right for up to 0.6"},
        ),
        (
            of_values(l=2),
            {UNCHANGED, "ill (privacy.l, privacy.max_value_share): a guessed value is right for up to 0.5 of"},
        ),
        (
            of_values(l={"entropy": 2}),
            {UNCHANGED, "ill (privacy.l): most people of a cluster can have the same value; a"},
        ),
        (
            of_values(t=0.2),
            {
                UNCHANGED,
                "ill (privacy.t): the share of a value in a cluster can exceed that in the reference by up to 0.2; a",
            },
        ),
        (
            of_values(l=2) | STREAM,
            {UNCHANGED, BLOCK, "ill (privacy.l, privacy.max_value_share)"},
        ),
        (
            {
                "attributes": PERSON | AGE | ILL | {"a": {"role": "confidential", "type": "integer", "protect": True}},
                "privacy": {"k": 3, "t": 0.2},
            },
            {
                ALL_EQUAL,
                "a (privacy.t): the share of a value in a cluster can exceed that in the reference by more than",
                "ill, a: published unchanged",
            },
        ),
        (
            {"attributes": PERSON | AGE | {"w": {"role": "other", "publish_unchanged": True}}},
            {"w: published unchanged"},
        ),
        (of_quasi(scale="nominal"), {"x: the published category is that of a member, perhaps of only one"}),
        (of_quasi(scale="ordinal", order=["a", "b"]), {"x: the published category is that of a member"}),
        (
            of_quasi(scale="nominal", taxonomy={"A": ["a", "b"], "B": ["c"]}),
            {"x: a published leaf is the value of all members, and a published group says that they have several"},
        ),
        (of_quasi(bounds=[0, 9], resolution=1, missing="group"), {"x: null shows that at least half of a cluster"}),
        (of_quasi(bounds=[0, 9]), {"x (exact mean): a value far above all others"}),
        (of_quasi(resolution=1), {"x (no bounds): a value far above"}),
        (of_quasi(scale="time", resolution="h"), {"x (finer than a day): a value far above"}),
        (of_quasi(scale="time", resolution="month"), set()),
    ],
)
def test_each_choice_of_a_policy_is_told_with_the_attack_that_it_leaves_open(
    document: dict[str, Any], expected: set[str], tmp_path: Path
) -> None:
    told = left_open(load(json.dumps({"attributes": PERSON | AGE, "privacy": {"k": 3}} | document), tmp_path))
    assert len(told) <= 10
    assert document or all(any(sentence.startswith(words) for sentence in told) for words in ALWAYS)
    others = [sentence for sentence in told if not sentence.startswith(ALWAYS)]
    assert len(others) == len(expected), others
    for words in expected:
        assert any(sentence.startswith(words) for sentence in others), (words, others)


def test_a_policy_that_leaves_all_open_is_told_in_ten_sentences(tmp_path: Path) -> None:
    quasi: dict[str, dict[str, Any]] = {
        "a": {"scale": "nominal", "missing": "group"},
        "b": {"scale": "nominal", "taxonomy": {"A": ["a", "b"], "B": ["c"]}},
        "c": {"bounds": None, "resolution": 0},
    }
    attributes = PERSON | ILL | {"w": {"role": "confidential", "protect": True, "type": "string", "scale": "nominal"}}
    attributes |= {name: {"role": "quasi_identifier"} | more for name, more in quasi.items()}
    document = {"attributes": attributes, "privacy": {"k": 3, "max_value_share": 0.9}, "stream": {"delta": 9}}
    assert len(left_open(load(json.dumps(document), tmp_path))) == 10
