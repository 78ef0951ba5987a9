"""Options of a policy: correct releases hold, and each violation breaks its check."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle.naive_release import POLICY, NaiveRelease, broken, make_release

pytestmark = pytest.mark.unit


def policy_with(option: str) -> str:
    return POLICY.replace("max_share: 0.5", f"max_share: 0.5, {option}")


def test_a_correct_release_holds_with_every_option(tmp_path: Path) -> None:
    naive = make_release(tmp_path, 60, subjects=60)
    for record in naive.records:
        record |= {"age": 30 + record["age"] % 40, "income": 20_000 + record["income"] / 2, "dose": 1.0}
    options = "per_subject: {max: 9, window: 10}, min_population: 10"
    made = NaiveRelease(tmp_path, naive.records, naive.clusters, policy=policy_with(options))
    verdict = made.verify()
    assert verdict.exit_code == 0
    assert verdict["releases"].status == "holds"
    assert verdict["population"].status == "holds"
    assert not any("subjects were held" in unseen for unseen in verdict.not_examined)
    unseen = made.verify(partial=True).not_examined
    assert any("the end of the input released records while fewer than 10 subjects were held" in one for one in unseen)


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
