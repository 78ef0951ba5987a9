"""Options of a policy: correct releases hold, and each violation breaks its check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from oracle.naive_release import POLICY, NaiveRelease, broken, make_release
from shoal.audit import Verdict

pytestmark = pytest.mark.unit


def policy_with(option: str) -> str:
    return POLICY.replace("max_share: 0.5", f"max_share: 0.5, {option}")


def release_of(tmp_path: Path, incomes: list[float], option: str, **more: Any) -> NaiveRelease:
    """One cluster of records that differ in their income, and in the columns of ``more``."""
    records = [
        {"patient": f"p{number}", "diagnosis": f"d{number}", "age": 40, "income": income, "dose": 1.0, "ward": None}
        | {name: values[number] for name, values in more.items()}
        for number, income in enumerate(incomes)
    ]
    return NaiveRelease(tmp_path, records, [list(range(len(records)))], policy=policy_with(option))


def verdict_of(tmp_path: Path, incomes: list[float], percent: float, **more: Any) -> Verdict:
    return release_of(tmp_path, incomes, f"dominance: {percent}", **more).verify()


def test_a_correct_release_holds_with_every_option(tmp_path: Path) -> None:
    naive = make_release(tmp_path, 60, subjects=60)
    for record in naive.records:
        record |= {"age": 30 + record["age"] % 40, "income": 20_000 + record["income"] / 2, "dose": 1.0}
    options = "dominance: 5, per_subject: {max: 9, window: 10}, min_population: 10"
    made = NaiveRelease(tmp_path, naive.records, naive.clusters, policy=policy_with(options))
    verdict = made.verify()
    assert verdict.exit_code == 0
    assert verdict["releases"].status == "holds"
    assert verdict["dominance"].status == "holds"
    assert verdict["population"].status == "holds"
    assert not any("subjects were held" in unseen for unseen in verdict.not_examined)
    unseen = made.verify(partial=True).not_examined
    assert any("the end of the input released records while fewer than 10 subjects were held" in one for one in unseen)


@pytest.mark.parametrize(
    ("incomes", "percent", "holds"),
    [
        ([100_000, 0, 0, 0, 0, 0, 0], 10, False),  # one large contribution among zeros
        ([100_000, 100_000, 0, 0, 0, 0, 0], 10, False),  # each of the two largest knows the other
        ([100_000, 50_000, 10_000, 0, 0, 0], 10, True),  # the remainder is exactly ten percent
        ([100_000, 50_000, 9_999.75, 0, 0, 0], 10, False),
        ([30_000, 31_000, 32_000, 29_000, 30_500], 10, True),
        ([0, 90_000, 90_000, 95_000, 95_000, 100_000, 99_000], 10, True),
        ([0, 100_000, 100_000, 100_000, 100_000, 100_000], 10, False),  # measured from the upper bound
        ([1_000, 0, 0, 0, 0, 0], 10, False),  # published as 0
        ([0, 0, 0, 0, 0, 0], 99, True),
    ],
)
def test_dominance_is_decided_exactly_at_the_limit(
    incomes: list[float],
    percent: float,
    holds: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    verdict = verdict_of(tmp_path, incomes, percent)
    assert verdict["dominance"].status == ("holds" if holds else "broken")
    assert broken(verdict) == (set() if holds else {"dominance"})


def test_contributions_are_summed_per_subject(tmp_path: Path) -> None:
    incomes = [50_000.0, 50_000, 50_000, 9_000, 4_000, 0, 0, 0]
    assert verdict_of(tmp_path, incomes, 10)["dominance"].status == "holds"
    subjects = ["a", "a", "b", "c", "d", "e", "f", "g"]
    assert verdict_of(tmp_path, incomes, 20, patient=subjects)["dominance"].status == "broken"


def test_contributions_are_measured_from_zero_if_it_lies_between_the_bounds(tmp_path: Path) -> None:
    incomes = [30_000.0, 31_000, 32_000, 29_000, 30_500, 30_000]
    verdict = verdict_of(tmp_path, incomes, 10, dose=[1.9, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert broken(verdict) == {"dominance"}
    assert verdict["dominance"].places == (0,)
    assert verdict["dominance"].worst == 0


def test_one_release_above_the_quota_of_a_window_breaks_the_check(tmp_path: Path) -> None:
    naive = make_release(tmp_path, 60, subjects=1000)
    for offset in (11, 14, 19, 20):
        naive.records[offset]["patient"] = "frequent"
    option = "per_subject: {max: 2, window: 10}"
    verdict = NaiveRelease(tmp_path, naive.records, naive.clusters, policy=policy_with(option)).verify()
    assert broken(verdict) == {"releases"}
    assert (verdict["releases"].failed, verdict["releases"].places, verdict["releases"].worst) == (1, (1,), 3)
    naive.records[11]["patient"] = "else"
    verdict = NaiveRelease(tmp_path, naive.records, naive.clusters, policy=policy_with(option)).verify()
    assert verdict.exit_code == 0
