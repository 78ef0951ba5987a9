"""Measures of released clusters and of fields that are published unchanged."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from oracle.naive_release import POLICY, NaiveRelease, broken, load_policy, make_records, make_release
from shoal.audit import Verdict, verify

pytestmark = pytest.mark.unit


def test_releases_per_subject_and_single_value_clusters_are_measured(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    for index in naive.clusters[0]:
        naive.records[index]["diagnosis"] = "flu" if index % 2 else " flu"
    for number, members in enumerate(naive.clusters):
        for place, index in enumerate(members):
            naive.records[index]["patient"] = "frequent" if place == 0 and number < 7 else f"p{index}"
    # A subject that is never released does not count.
    naive.records.insert(0, {**naive.records[0], "patient": "never"})
    naive.clusters = [[index + 1 for index in members] for members in naive.clusters]
    naive.regenerate()
    verdict = naive.verify(partial=True)
    assert verdict.exit_code == 0
    assert verdict.measures["releases_per_subject_max"] == 7
    assert verdict.measures["releases_per_subject_mean"] == pytest.approx(60 / 54)
    # Blanks around a value do not make it another one.
    assert verdict.measures["single_value_share.diagnosis"] == pytest.approx(1 / 11)
    shown = len(naive.clusters[0])
    assert verdict.measures["single_value_records.diagnosis"] == pytest.approx(shown / 60)


def measure(verdict: Verdict, name: str) -> float:
    """Return a measure that is known."""
    found = verdict.measures[name]
    assert found is not None
    return found


def warned(tmp_path: Path, ward: list[Any], *, n: int = 60) -> list[str]:
    records = [{**record, "ward": value} for record, value in zip(make_records(n), ward, strict=True)]
    naive = NaiveRelease(tmp_path, records, make_release(tmp_path, n).clusters)
    verdict = naive.verify()
    assert verdict.exit_code == 0
    return [warning.line() for warning in verdict.warnings if warning.text.startswith("ward")]


def test_a_field_with_unique_values_is_a_warning(tmp_path: Path) -> None:
    (warning,) = warned(tmp_path, random.Random(1).sample(range(60), 60))
    assert "100 % of its values are unique" in warning


def test_a_field_that_follows_the_order_of_arrival_is_a_warning(tmp_path: Path) -> None:
    (warning,) = warned(tmp_path, [number // 4 for number in range(60)])
    assert "rank correlation 1.00" in warning
    (warning,) = warned(tmp_path, [f"t{90 - number // 4}" for number in range(60)])
    assert "rank correlation" in warning
    assert warned(tmp_path, [str(8 + number // 20) for number in range(60)])


def test_common_values_in_no_order_are_no_warning(tmp_path: Path) -> None:
    chance = random.Random(2)
    assert warned(tmp_path, [chance.randrange(3) for _ in range(60)]) == []
    assert warned(tmp_path, [None] * 60) == []
    assert warned(tmp_path, [chance.choice(["x", None]) for _ in range(60)]) == []


@pytest.mark.parametrize(("unique", "is_warned"), [(2, False), (4, True)])
def test_a_unique_share_above_five_percent_is_a_warning(tmp_path: Path, unique: int, is_warned: bool) -> None:  # noqa: FBT001
    common = [f"c{number % 3}" for number in range(60 - unique)]
    values = [*common[:20], *(f"u{number}" for number in range(unique)), *common[20:]]
    assert any("are unique" in text for text in warned(tmp_path, values)) is is_warned


@pytest.mark.parametrize("csv", [False, True])
def test_nulls_do_not_count_for_the_unique_share(tmp_path: Path, csv: bool) -> None:  # noqa: FBT001
    naive = make_release(tmp_path, 60, csv=csv)
    for number, record in enumerate(naive.records):
        record["ward"] = f"w{number * 7 % 60}" if number % 20 == 7 else None
    naive.regenerate()
    assert naive.verify().measures["unique_share.ward"] == 1
    assert any(one.text.startswith("ward") and "unique" in one.text for one in naive.verify().warnings)
    assert broken(naive.verify(strict=True)) == {"unchanged"}


def test_fewer_than_thirty_records_are_no_warning(tmp_path: Path) -> None:
    assert warned(tmp_path, list(range(20)), n=20) == []


@pytest.mark.parametrize("acknowledged", [False, True])
def test_an_identifying_field_is_a_warning_and_with_strict_an_error_unless_acknowledged(
    acknowledged: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    meant = "type: string, publish_unchanged: true" if acknowledged else "type: string"
    naive = make_release(tmp_path, 60)
    naive.policy = POLICY.replace("{role: confidential, type: string", f"{{role: confidential, {meant}")
    lenient, strict = naive.verify(), naive.verify(strict=True)
    warned = [one.line() for one in lenient.warnings if one.text.startswith("diagnosis")]
    assert any("unique" in text for text in warned)
    assert all(("this is intended" in text) != acknowledged for text in warned)
    assert lenient.exit_code == 0
    assert strict.exit_code == (0 if acknowledged else 1)
    assert broken(strict) == (set() if acknowledged else {"unchanged"})
    assert json.dumps(strict.as_dict())


# ---------------------------------------------------------------- fields together

TWO_FIELDS = """
attributes:
  patient: {role: identifier, subject: true}
  age:     {role: quasi_identifier, bounds: [0, 110], integer: true}
  income:  {role: quasi_identifier, bounds: [0, 100000], resolution: 500}
  dose:    {role: quasi_identifier, bounds: [-2, 2], resolution: 0.05}
  sex:     {role: other, type: string, publish_unchanged: true}
  city:    {role: other, type: string, publish_unchanged: true}
  illness: {role: confidential, type: string}
privacy: {k: 5}
"""


def two_fields(tmp_path: Path, cities: int) -> tuple[Path, Path]:
    """Write an original and a release of 100 clusters of five, with two known fields of few values."""
    chance = random.Random(5)
    original, released = tmp_path / "original.jsonl", tmp_path / "released.jsonl"
    people, rows = [], []
    for cluster in range(100):
        for place in range(5):
            unchanged = {
                "sex": chance.choice("fm"),
                "city": f"c{chance.randrange(cities)}",
                "illness": f"i{chance.randrange(3)}",
            }
            values = {"age": cluster, "income": 1000, "dose": 0.5}
            people.append({"patient": f"p{cluster}-{place}", **values, **unchanged})
            rows.append({**values, "dose": "0.50", **unchanged})
    original.write_text("".join(json.dumps(record) + "\n" for record in people))
    texts = [json.dumps(row, separators=(",", ":")).replace('"0.50"', "0.50") for row in rows]
    texts = [text for cluster in range(100) for text in sorted(texts[5 * cluster : 5 * cluster + 5])]
    released.write_text("".join(f"{text}\n" for text in texts))
    return original, released


def test_fields_of_few_values_that_single_out_rows_together_are_a_warning(tmp_path: Path) -> None:
    original, released = two_fields(tmp_path, cities=6)
    evidence = tmp_path / "evidence.jsonl"
    lines = [{"partition": 0, "cluster": c, "offsets": list(range(5 * c, 5 * c + 5))} for c in range(100)]
    evidence.write_text("".join(json.dumps(line) + "\n" for line in lines))
    policy = load_policy(tmp_path, TWO_FIELDS + "stream: {delta: 20}\n")
    verdict, strict = (verify(policy, original, released, evidence, strict=strict) for strict in (False, True))
    assert verdict.exit_code == strict.exit_code == 0
    assert verdict.warnings == strict.warnings
    pairs = [one.text for one in verdict.warnings if one.text.startswith("published values together with sex, city:")]
    assert len(pairs) == 1
    rows = [json.loads(line) for line in released.read_text().splitlines()]
    classes = Counter((row["age"], row["sex"], row["city"]) for row in rows)
    unique = sum(count == 1 for count in classes.values())
    assert f": {unique} of 500 rows" in pairs[0]
    assert f"in {len(classes)} classes" in pairs[0]
    assert measure(verdict, "joint_unique_share.sex+city") == unique / 500 > 0.5
    assert 0.05 < measure(verdict, "joint_unique_share.sex") < 0.1
    # The policy says of a confidential field that others do not know it.
    assert measure(verdict, "joint_unique_share.illness") > 0.1
    assert not any("illness" in one.text for one in verdict.warnings)


# ---------------------------------------------------------------- spellings of one person


@pytest.mark.parametrize(("normalize", "subjects", "clusters"), [("", 2, 1), (", normalize: [casefold, spaces]", 0, 0)])
def test_near_duplicate_subjects_are_counted(tmp_path: Path, normalize: str, subjects: int, clusters: int) -> None:
    naive = make_release(tmp_path, 60)
    naive.policy = POLICY.replace("subject: true", f"subject: true{normalize}")
    for number, record in enumerate(naive.records):
        record["patient"] = f"name {number}"
    first, second = naive.clusters[0], naive.clusters[1]
    for cluster, spelling in ((first, "NAME {}"), (second, "name  {}")):
        naive.records[cluster[0]]["patient"] = spelling.format(first[1])
    naive.regenerate()
    verdict = naive.verify()
    assert verdict.measures["near_duplicate_subjects"] == subjects
    assert verdict.measures["near_duplicate_clusters"] == clusters
    warned = [one.line() for one in verdict.warnings if "equal to another one except for case" in one.text]
    assert len(warned) == (1 if subjects else 0)
    assert not any("name" in text.lower().replace("names", "") and "NAME" in text for text in warned)
    if not normalize:
        assert verdict.exit_code == 0
        assert verdict.measures["near_duplicate_below_k"] == (1 if len(first) == 5 else 0)
