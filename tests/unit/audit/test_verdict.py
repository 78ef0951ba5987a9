"""The verdict as JSON and as text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from oracle.naive_release import make_release
from shoal.audit import Verdict
from shoal.audit.verdict import counted

pytestmark = pytest.mark.unit


def test_a_verdict_has_plain_values_and_a_text(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    verdict = naive.verify(summary=True)
    plain = json.loads(json.dumps(verdict.as_dict()))
    assert plain["outcome"] == "holds"
    assert plain["verified"] is True
    assert plain["exit_code"] == 0
    assert plain["counts"] == {
        "records": 60,
        "usable": 60,
        "unusable": 0,
        "rows": 60,
        "clusters": 11,
        "suppressed": 0,
        "claimed": 0,
        "held": 0,
    }
    assert (plain["partial"], plain["claimed"]) == (False, [])
    assert {check["name"] for check in plain["checks"]} >= {"subjects", "share", "once", "accounts"}
    assert len(plain["not_examined"]) == 3
    assert plain["early_decisions"] == 0
    text = verdict.text()
    assert text.startswith("holds: 60 records, 60 usable")
    assert "holds: every cluster holds at least 5 different subjects (11 examined, worst 5)" in text
    assert "not examined: when anything was released" in text


def test_a_verdict_on_a_part_says_so(tmp_path: Path) -> None:
    verdict = make_release(tmp_path).verify(partial=True)
    assert verdict.as_dict()["partial"] is True
    assert verdict.text().startswith("holds (a part): 60 records")
    assert "not examined: whether every record was released" in verdict.text()
    assert verdict.counts["held"] is None
    assert verdict.early_decisions is None


def test_the_first_line_uses_the_singular_for_one() -> None:
    text = Verdict((), {"records": 1, "clusters": 1, "suppressed": 1}, {}).text()
    assert text == "holds: 1 record, 1 cluster, 1 suppressed"


def test_what_only_the_run_states_is_told_as_claimed() -> None:
    verdict = Verdict((), {}, {}, claimed=("7 records",))
    assert (verdict.exit_code, verdict.text()) == (0, "holds: \n  claimed: 7 records")


def test_a_broken_verdict_lists_clusters_and_counts(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.rows = [rows[1:] for rows in naive.rows]
    text = naive.verify().text()
    assert text.startswith("broken: ")
    assert "BROKEN: every recomputed row of a cluster was released (11 examined, 11 failed); cluster 0, 1, " in text
    assert ", ..." in text
    naive.regenerate()
    naive.rows = [rows[1:] if number < 10 else rows for number, rows in enumerate(naive.rows)]
    assert "(11 examined, 10 failed); cluster 0, 1, 2, 3, 4, 5, 6, 7, 8, 9\n" in naive.verify().text()


def test_an_undecided_verdict_names_the_missing_input() -> None:
    verdict = Verdict((), {"clusters": None}, {}, undecided=("give it",))
    assert verdict.outcome == "undecided"
    assert verdict.exit_code == 2
    assert not verdict.verified
    assert "undecided: give it" in verdict.text()
    assert "unknown clusters" in verdict.text()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, "unknown"), (0, "0"), (120000, "120000"), (0.0, "0"), (5.0, "5"), (1.7314169999999998, "1.7314")),
        *((0.30000000000000004, "0.3"), (-0.5, "-0.5"), (0.00012345, "0.00012"), (1e-9, "1e-09")),
    ],
)
def test_the_text_shows_rounded_numbers_and_the_json_exact_ones(value: float | None, text: str) -> None:
    verdict = Verdict((), {}, {"m": value})
    assert verdict.text() == f"holds: \n  measured: m = {text}"
    assert verdict.as_dict()["measures"] == {"m": value}


@pytest.mark.parametrize(("count", "text"), [(0, "0 clusters"), (1, "1 cluster"), (2, "2 clusters")])
def test_a_count_of_one_has_its_noun_in_the_singular(count: int, text: str) -> None:
    assert counted(count, "cluster") == text
