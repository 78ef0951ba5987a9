"""The judge on what a policy asks for beyond k: sound releases hold, and each planted cheat is seen where it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from oracle.naive_release import POLICY, World, broken, make_world
from shoal.audit import Verdict

pytestmark = pytest.mark.unit

PEOPLE = 8


def asked(option: str) -> str:
    return POLICY.replace("max_share: 0.5", f"max_share: 0.5, {option}")


def world_of(tmp_path: Path, incomes: list[float], option: str, **more: Any) -> World:
    """One cluster of records that differ in nothing but their income, or in what ``more`` says."""
    records = [
        {"patient": f"p{number}", "diagnosis": f"d{number}", "age": 40, "income": income, "dose": 1.0, "ward": None}
        | {name: values[number] for name, values in more.items()}
        for number, income in enumerate(incomes)
    ]
    return World(tmp_path, records, [list(range(len(records)))], policy=asked(option))


def judged(tmp_path: Path, incomes: list[float], percent: float, **more: Any) -> Verdict:
    return world_of(tmp_path, incomes, f"dominance: {percent}", **more).judge()


def test_a_sound_release_holds_with_every_option(tmp_path: Path) -> None:
    world = make_world(tmp_path, 60, people=60)
    for record in world.records:
        record |= {"age": 30 + record["age"] % 40, "income": 20_000 + record["income"] / 2, "dose": 1.0}
    options = "dominance: 5, per_subject: {max: 9, window: 10}, min_population: 10"
    verdict = World(tmp_path, world.records, world.clusters, policy=asked(options)).judge()
    assert verdict.exit_code == 0
    assert verdict["releases"].status == "holds"
    assert verdict["dominance"].status == "holds"
    assert any("fewer than 10 people were held" in unseen for unseen in verdict.not_examined)


@pytest.mark.parametrize(
    ("incomes", "percent", "holds"),
    [
        ([100_000, 0, 0, 0, 0, 0, 0], 10, False),  # one huge one among zeros
        ([100_000, 100_000, 0, 0, 0, 0, 0], 10, False),  # two: each knows the other
        ([100_000, 50_000, 10_000, 0, 0, 0], 10, True),  # what is left is exactly ten percent
        ([100_000, 50_000, 9_999.75, 0, 0, 0], 10, False),
        ([30_000, 31_000, 32_000, 29_000, 30_500], 10, True),
        ([0, 90_000, 90_000, 95_000, 95_000, 100_000, 99_000], 10, True),
        ([0, 100_000, 100_000, 100_000, 100_000, 100_000], 10, False),  # seen from the other bound
        ([1_000, 0, 0, 0, 0, 0], 10, False),  # published as 0: a reader knows how little it is at most
        ([0, 0, 0, 0, 0, 0], 99, True),
    ],
)
def test_the_rule_is_judged_to_the_last_digit(
    incomes: list[float],
    percent: float,
    holds: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    verdict = judged(tmp_path, incomes, percent)
    assert verdict["dominance"].status == ("holds" if holds else "broken")
    assert broken(verdict) == (set() if holds else {"dominance"})


def test_contributions_are_those_of_people_and_not_of_records(tmp_path: Path) -> None:
    incomes = [50_000.0, 50_000, 50_000, 9_000, 4_000, 0, 0, 0]
    assert judged(tmp_path, incomes, 10)["dominance"].status == "holds"
    people = ["a", "a", "b", "c", "d", "e", "f", "g"]
    assert judged(tmp_path, incomes, 20, patient=people)["dominance"].status == "broken"


def test_zero_is_known_where_it_lies_between_the_bounds(tmp_path: Path) -> None:
    incomes = [30_000.0, 31_000, 32_000, 29_000, 30_500, 30_000]
    verdict = judged(tmp_path, incomes, 10, dose=[1.9, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert broken(verdict) == {"dominance"}
    assert verdict["dominance"].places == (0,)
    assert verdict["dominance"].worst == 0


def test_one_release_too_many_in_a_window_is_seen_and_in_the_next_window_it_is_none(tmp_path: Path) -> None:
    world = make_world(tmp_path, 60, people=1000)
    for offset in (11, 14, 19, 20):
        world.records[offset]["patient"] = "often"
    option = "per_subject: {max: 2, window: 10}"
    verdict = World(tmp_path, world.records, world.clusters, policy=asked(option)).judge()
    assert broken(verdict) == {"releases"}
    assert (verdict["releases"].failed, verdict["releases"].places, verdict["releases"].worst) == (1, (1,), 3)
    world.records[11]["patient"] = "else"
    verdict = World(tmp_path, world.records, world.clusters, policy=asked(option)).judge()
    assert verdict.exit_code == 0


def test_how_well_fields_find_records_is_measured_with_and_without_evidence(tmp_path: Path) -> None:
    world = make_world(tmp_path, 60)
    for evidence in (True, False):
        measures = world.judge(evidence=evidence).measures
        assert measures["unique_share.diagnosis"] == 1
        assert 0 <= (measures["order_correlation.ward"] or 0) <= 1
    assert world.judge().measures["largest_share"] is not None
    assert make_world(tmp_path, 20).judge().measures["unique_share.diagnosis"] is None


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_confidential_field_that_finds_records_is_a_warning_and_strictly_an_error_unless_it_is_meant(
    acknowledged: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    meant = "type: string, publish_unchanged: true" if acknowledged else "type: string"
    world = make_world(tmp_path, 60)
    world.policy = POLICY.replace("{role: confidential, type: string", f"{{role: confidential, {meant}")
    lenient, strict = world.judge(), world.judge(strict=True)
    warned = [text for text in lenient.warnings if text.startswith("diagnosis")]
    assert any("unique" in text for text in warned)
    assert all(("this is meant" in text) != acknowledged for text in warned)
    assert lenient.exit_code == 0
    assert strict.exit_code == (0 if acknowledged else 1)
    assert broken(strict) == (set() if acknowledged else {"unchanged"})
    assert json.dumps(strict.as_dict())
