"""Warnings of a verdict: what a person should know of a release that holds, and nothing of a sound one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracle.naive_release import BOUNDS, POLICY, NaiveRelease, Record, group, make_records
from shoal.audit import Verdict
from shoal.audit.fields import merged_subject
from shoal.audit.findings import WEIGHTS, by_weight
from shoal.audit.verdict import Finding
from shoal.cli import main
from support.judged_runs import judged, released
from support.making import SUBJECT, policy_of, quasi, unchanged_field
from support.sound_releases import no_disk, sound_release

pytestmark = pytest.mark.unit

MARK = "Zebedee"
"""Part of every text of a record: no warning may show it."""


def plain_records(n: int = 200) -> list[Record]:
    """Return records within their bounds, with few values of the unchanged fields."""
    chance = random.Random(4)
    found = make_records(n, subjects=10 * n)
    for record in found:
        record |= {name: min(max(record[name], low), high) for name, (low, high) in BOUNDS.items()}
        record |= {"diagnosis": chance.choice(["flu", "cold", MARK]), "ward": None}
    return found


def release(folder: Path, records: list[Record], policy: str = POLICY) -> NaiveRelease:
    return NaiveRelease(folder, records, group(records), policy=policy)


def warned(verdict: Verdict) -> dict[str, Finding]:
    """Return the warnings of a release that holds, by their codes, and check that none shows a value."""
    assert verdict.exit_code == 0, verdict.text()
    told = json.dumps(verdict.as_dict()) + verdict.text(verbose=True)
    assert MARK not in told
    assert verdict.as_dict()["warnings"] == [one.as_dict() for one in verdict.warnings]
    assert [line for line in verdict.text().splitlines() if line.startswith("  warning")] == [
        f"  warning: {one.line()}" for one in verdict.warnings
    ]
    return {one.code: one for one in verdict.warnings}


def test_a_sound_release_has_no_warning_and_says_in_one_line_what_it_is_worth(tmp_path: Path) -> None:
    verdict = release(tmp_path, plain_records()).verify(summary=True)
    assert warned(verdict) == {}
    first, *others = verdict.text().splitlines()
    assert first.startswith("holds: k is 5, promised 5; 200 of 200 records released, of ")
    assert first.endswith("; 17 of 17 checks hold")
    assert "; 0 % suppressed or refused; mean loss " in first
    assert [line.split(":")[0] for line in others[:-1]] == ["  not examined"] * 3
    assert others[-1] == "  -v shows 17 more checks, the counts and the measures"
    worth = verdict.as_dict()["worth"]
    assert (worth["k"], worth["k_promised"], worth["rows"], worth["records"]) == (5, 5, 200, 200)
    assert worth["left_out"] == 0
    assert worth["people"] == len({record["patient"] for record in plain_records()})
    assert 0 < worth["mean_loss"] < worth["worst_loss"] < 1
    assert worth["worst_attribute"] in BOUNDS


def test_the_loss_is_the_one_that_the_summary_states(tmp_path: Path) -> None:
    policy = policy_of({"who": SUBJECT, "x": quasi(0, 99), "y": quasi(0, 99)}, stream={"delta": 20})
    lines = [json.dumps({"who": f"p{n}", "x": n * 7 % 100, "y": n * 31 % 100}) for n in range(90)]
    paths = released(tmp_path, policy, "\n".join(lines) + "\n")
    stated = json.loads(paths["summary"].read_text())
    for given in (("evidence",), ("evidence", "summary")):
        worth = judged(policy, paths, *given).worth
        assert worth is not None
        assert worth.mean_loss == pytest.approx(stated["mean_loss"])
        assert worth.worst_loss == pytest.approx(max(stated["loss"].values()))


def test_promised_values_of_l_and_t_are_in_the_first_line(tmp_path: Path) -> None:
    fields = {"who": SUBJECT, "x": quasi(0, 99), "ill": unchanged_field("string")}
    policy = policy_of(fields, privacy={"k": 3, "l": 2, "t": 0.9})
    lines = [f"p{number},{number},{'ab'[number % 2]}" for number in range(12)]
    paths = released(tmp_path, policy, "\n".join(["who,x,ill", *lines]) + "\n", "original.csv")
    first = judged(policy, paths, "evidence").text().splitlines()[0]
    assert "; l is 2, promised 2; t is " in first
    assert ", promised 0.9; " in first


# ---------------------------------------------------------------- records and values


def lonely(alone: int, together: int) -> str:
    """Return records of one person, then records of as many others: the first are suppressed."""
    people = ["p"] * alone + [f"q{number}" for number in range(together)]
    return "".join(json.dumps({"who": who, "x": 5}) + "\n" for who in people)


@pytest.mark.parametrize(("alone", "together", "suppressed"), [(11, 189, 8), (12, 188, 13), (178, 22, 178)])
def test_more_than_five_percent_suppressed_are_a_warning(
    tmp_path: Path, alone: int, together: int, suppressed: int
) -> None:
    policy = policy_of({"who": SUBJECT, "x": quasi(0, 9, resolution=1)}, privacy={"k": 5}, stream={"delta": 6})
    paths = released(tmp_path, policy, lonely(alone, together))
    summary = json.loads(paths["summary"].read_text())
    verdict = judged(policy, paths, "evidence", "summary", "quarantine")
    found = warned(verdict)
    assert sum(summary["suppressed"].values()) == suppressed
    assert set(found) == ({"left_out"} if suppressed > 10 else set())
    assert verdict.worth is not None
    assert verdict.worth.left_out == pytest.approx(suppressed / 200)
    if suppressed > 10:
        assert found["left_out"].figures == {"suppressed": suppressed, "refused": 0, "share": suppressed / 200}
        assert "a larger delta or a smaller k" in found["left_out"].remedy
        assert warned(judged(policy, paths, "evidence", "summary", "quarantine", partial=True)).keys() == set()


def test_refused_records_count_and_have_another_remedy(tmp_path: Path) -> None:
    policy = policy_of({"who": SUBJECT, "x": quasi(0, 9, resolution=1)}, stream={"delta": 6})
    text = lonely(0, 20) + "".join(json.dumps({"who": MARK, "x": MARK}) + "\n" for _ in range(3))
    paths = released(tmp_path, policy, text)
    found = warned(judged(policy, paths, "evidence", "summary"))["left_out"]
    assert found.figures == {"suppressed": 0, "refused": 3, "share": 3 / 23}
    assert found.text.startswith("13 % of the records are not in the release: 0 suppressed, 3 refused")
    assert "fields of refused records" in found.remedy


@pytest.mark.parametrize(("count", "is_warned"), [(2, False), (3, True)])
def test_more_than_one_percent_clipped_are_a_warning(tmp_path: Path, count: int, is_warned: bool) -> None:  # noqa: FBT001
    records = plain_records()
    for record in records[10 : 10 + count]:
        record["age"] = 130
    records[0]["dose"] = -3
    found = warned(release(tmp_path, records).verify())
    assert set(found) == ({"clipped"} if is_warned else set())
    if is_warned:
        assert found["clipped"].figures == {"values": 3, "share": 0.015}
        assert found["clipped"].fields == ("age",)
        assert "130" not in found["clipped"].line()


def test_values_of_refused_records_are_not_clipped(tmp_path: Path) -> None:
    policy = policy_of({"who": SUBJECT, "x": quasi(0, 9), "y": quasi(0, 9)}, stream={"delta": 6})
    lines = [json.dumps({"who": f"p{n}", "x": 99 if n < 2 else 5, "y": None if n < 2 else 5}) for n in range(60)]
    paths = released(tmp_path, policy, "\n".join(lines) + "\n")
    assert warned(judged(policy, paths, "evidence", "summary")) == {}


# ---------------------------------------------------------------- people

WITH_CARD = POLICY.replace("attributes:", "attributes:\n  card: {role: identifier}")


def with_cards(
    folder: Path, each: int, ages: Callable[[int, int], int] = lambda _, age: age, policy: str = WITH_CARD
) -> Verdict:
    """Judge a release in which as many subjects have one value of a second identifier, which may decide on the age."""
    records = plain_records()
    numbers = {who: n for n, who in enumerate(dict.fromkeys(record["patient"] for record in records))}
    for record in records:
        number = numbers[record["patient"]] // each
        record |= {"card": f"{MARK}{number}", "age": ages(number, record["age"])}
    return release(folder, records, policy).verify()


def test_another_identifier_by_which_k_is_smaller_is_a_warning(tmp_path: Path) -> None:
    verdict = with_cards(tmp_path, 4)
    found = warned(verdict)["other_person"]
    assert verdict.outcome == "holds"
    assert verdict.warnings[0] is found
    assert found.fields == ("card",)
    assert 1 <= found.figures["k"] < 5
    assert found.figures["clusters"] > 1
    assert found.text.startswith(f"counted by the identifier card instead of patient, {found.figures['clusters']} of ")


def test_every_record_as_a_person_is_compared_with_each_identifier(tmp_path: Path) -> None:
    policy = WITH_CARD.replace(", subject: true", "") + "subject: every_record\n"
    found = warned(with_cards(tmp_path, 4, policy=policy))["other_person"]
    assert "instead of every record" in found.text


@pytest.mark.parametrize(
    ("each", "ages", "is_warned"),
    [
        (9, lambda _, age: age, True),  # few admissions each, of which nothing is alike
        (12, lambda _, age: age, False),  # family doctors
        (12, lambda number, age: (age + 10 * number) // 2, False),  # family doctors who prefer patients of an age
        (12, lambda number, age: 5 * number + age % 2, True),  # patients with many admissions
    ],
)
def test_what_many_unlike_subjects_share_may_be_a_person(
    tmp_path: Path,
    each: int,
    ages: Callable[[int, int], int],
    is_warned: bool,  # noqa: FBT001
) -> None:
    found = warned(with_cards(tmp_path, each, ages))
    assert ("other_person" in found, "may_be_person" in found) == (is_warned, not is_warned)
    text = "if card names a person, and not a group as a doctor does, "
    assert is_warned or found["may_be_person"].text.startswith(text)


@pytest.mark.parametrize(
    "card",
    [
        lambda n, _: f"visit {n}",  # finer than the person
        lambda n, _: f"doctor {n % 25}" if n % 2 else f"doctor {n // 20}",  # people have several
        lambda n, _: f"site {n % 4}",  # no release could reach k by it
        lambda n, who: (None, "", f"c{who}")[n % 3],  # a missing one is nobody in particular
    ],
)
def test_identifiers_of_other_things_are_no_warning(tmp_path: Path, card: Callable[[int, str], Any]) -> None:
    records = plain_records()
    for n, record in enumerate(records):
        record |= {"patient": f"p{n // 2}"}
    made = [{"card": card(n, record["patient"]), **record} for n, record in enumerate(records)]
    assert "other_person" not in warned(release(tmp_path, made, WITH_CARD).verify())


@pytest.mark.parametrize(
    ("one", "other", "are_one"),
    [
        ("Ann-Marie O'Neil", "ann marie oneil", True),
        ("p007", "P7", True),
        ("p-007", "p7", True),
        ("0012", "12", True),
        ("p70", "p7", False),
        ("1-12", "11-2", False),
        ("1.05", "1.5", False),
        ("p1 2", "p12", False),
    ],
)
def test_subjects_that_differ_in_punctuation_or_zeros_are_near_duplicates(one: str, other: str, are_one: bool) -> None:  # noqa: FBT001
    assert (merged_subject(one, "string") == merged_subject(other, "string")) is are_one
    assert merged_subject("-7e0", "any") != merged_subject("7e0", "any")


def test_near_duplicate_subjects_that_make_k_smaller_are_a_warning(tmp_path: Path) -> None:
    records = plain_records()
    first = next(members for members in group(records) if len(members) == 5)
    for n, record in enumerate(records):
        record["patient"] = f"{MARK} {n + 1000}"
    records[first[0]]["patient"] = f"{MARK}, {first[1] + 1000:08}"
    found = warned(release(tmp_path, records).verify())
    assert set(found) == {"near_duplicate_subjects"}
    assert found["near_duplicate_subjects"].figures == {
        "near_duplicate_subjects": 1,
        "near_duplicate_clusters": 1,
        "near_duplicate_below_k": 1,
    }
    assert "1 cluster would have fewer than k people" in found["near_duplicate_subjects"].text


# ---------------------------------------------------------------- fields


def test_a_field_that_repeats_an_identifier_is_the_first_warning(tmp_path: Path) -> None:
    records = plain_records()
    for record in records:
        record["patient"] = record["diagnosis"] = f"{MARK}{record['patient']}"
    records[0]["diagnosis"] = None
    verdict = release(tmp_path, records).verify()
    assert [one.code for one in verdict.warnings] == ["identifier_copy", "identifier_like"]
    found = warned(verdict)
    assert found["identifier_copy"].figures == {"records": 199, "share": 0.995}
    assert found["identifier_copy"].fields == ("diagnosis", "patient")
    assert "declare diagnosis as an identifier" in found["identifier_like"].remedy


@pytest.mark.parametrize(("text", "code"), [(f"{MARK}{{}}", "identifier_like"), ("{}.5", "unique_values")])
def test_unique_texts_look_like_an_identifier_and_unique_numbers_do_not(tmp_path: Path, text: str, code: str) -> None:
    records = plain_records()
    for n, record in enumerate(records):
        record["diagnosis"] = text.format(n * 77 % 200)
    assert set(warned(release(tmp_path, records).verify())) == {code}


@pytest.mark.parametrize(
    ("name", "is_warned"),
    [
        ("birth_date", True),
        ("patientSex", True),
        ("ZIP", True),
        ("home.city", True),
        ("dosage", False),
        ("capacity", False),
        ("message", False),
    ],
)
@pytest.mark.parametrize("meant", [False, True])
def test_a_confidential_field_with_the_name_of_a_known_fact_is_a_warning(
    tmp_path: Path,
    name: str,
    is_warned: bool,  # noqa: FBT001
    meant: bool,  # noqa: FBT001
) -> None:
    field = unchanged_field("string") | ({"publish_unchanged": True} if meant else {})
    policy = policy_of({"who": SUBJECT, "x": quasi(0, 9, resolution=1), name: field}, stream={"delta": 6})
    paths = released(
        tmp_path, policy, f"who,x,{name}\n" + "".join(f"p{n},5,{MARK}\n" for n in range(20)), "original.csv"
    )
    found = warned(judged(policy, paths, "evidence", "summary"))
    assert set(found) == ({"known_outside"} if is_warned and not meant else set())


# ---------------------------------------------------------------- all of them


def test_warnings_are_in_the_order_of_their_weight() -> None:
    assert [one.code for one in by_weight(Finding(code, "") for code in reversed(WEIGHTS))] == list(WEIGHTS)


@pytest.mark.parametrize("seed", [1, 2, 5, 8, 13, 21, 34, 104, 3070])
def test_warnings_of_random_releases_are_true(tmp_path: Path, seed: int) -> None:
    with no_disk():
        made = sound_release(seed, tmp_path)
    verdict = made.verdict(evidence=True, quarantine=True, summary=True)
    assert verdict is not None
    assert verdict.causes == ()
    found = {one.code for one in verdict.warnings}
    assert not found & {"other_person", "identifier_copy"}
    out = verdict.counts["records"] or 0
    out -= (verdict.counts["rows"] or 0) + (verdict.counts["held"] or 0)
    assert ("left_out" in found) is (out > 0.05 * (verdict.counts["records"] or 0))


def test_the_command_prints_everything_only_if_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    release(tmp_path, plain_records()).write()
    (tmp_path / "policy.yaml").write_text(POLICY)
    given = ["--original", "original.jsonl", "--released", "released.jsonl", "--evidence", "evidence.jsonl"]
    printed = []
    for more in ([], ["-v"]):
        assert main(["verify", "policy.yaml", *given, *more, "--json", "verdict.json"]) == 0
        printed.append(capsys.readouterr().out.splitlines())
    short, long = printed
    assert short[0] == long[0]
    assert len(short) == 4
    assert sum(line.startswith("  holds: ") for line in long) == 16
    assert json.loads((tmp_path / "verdict.json").read_text())["worth"]["k"] == 5
