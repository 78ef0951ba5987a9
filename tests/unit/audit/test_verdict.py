"""The verdict as JSON and as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from oracle.naive_release import make_release
from shoal.audit import Verdict, verify
from support.judged_runs import write_lines
from support.making import SUBJECT, policy_of, quasi

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
    assert text.startswith("holds: k is 5, promised 5; 60 of 60 records released, of 51 people; ")
    assert "; 17 of 17 checks hold; 5 warnings\n  warning: diagnosis is published unchanged" in text
    assert "not examined: when anything was released" in text
    assert "holds: every cluster" not in text
    everything = verdict.text(verbose=True)
    assert everything.startswith(text[: text.index("  not examined")])
    assert "holds: every cluster holds at least 5 different subjects (11 examined, worst 5)" in everything
    assert "\n  counted: 60 records, 60 usable, 0 unusable, 60 rows, 11 clusters, " in everything
    assert "\n  measured: largest_share = " in everything


def test_a_verdict_on_a_part_says_so(tmp_path: Path) -> None:
    verdict = make_release(tmp_path).verify(partial=True)
    assert verdict.as_dict()["partial"] is True
    assert verdict.text().startswith(
        "holds (a part): k is 5, promised 5; 60 of 60 records released, of 51 people; mean "
    )
    assert "not examined: whether every record was released" in verdict.text()
    assert verdict.counts["held"] is None
    assert verdict.early_decisions is None


def test_a_broken_verdict_lists_clusters_and_counts(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.rows = [rows[1:] for rows in naive.rows]
    text = naive.verify().text(verbose=True)
    assert text.startswith("broken: k is 5, promised 5; 49 of 60 records released, of 51 people; ")
    assert "BROKEN: every recomputed row of a cluster was released (11 examined, 11 failed); cluster 0, 1, " in text
    assert ", ..." in text
    naive.regenerate()
    naive.rows = [rows[1:] if number < 10 else rows for number, rows in enumerate(naive.rows)]
    assert "(11 examined, 10 failed); cluster 0, 1, 2, 3, 4, 5, 6, 7, 8, 9\n" in naive.verify().text(verbose=True)


def test_an_undecided_verdict_names_the_missing_input() -> None:
    verdict = Verdict((), {"clusters": None}, {}, undecided=("give it",))
    assert verdict.outcome == "undecided"
    assert verdict.exit_code == 2
    assert not verdict.verified
    assert "undecided: give it" in verdict.text()
    assert "unknown clusters" in verdict.text(verbose=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "unknown"),
        (120000, "120000"),
        (5.0, "5"),
        (1.7314169999999998, "1.7314"),
        (0.00012345, "0.00012"),
        (1e-9, "1e-09"),
    ],
)
def test_the_text_shows_rounded_numbers_and_the_json_exact_ones(value: float | None, text: str) -> None:
    verdict = Verdict((), {}, {"m": value})
    assert verdict.text(verbose=True) == f"holds: 0 of 0 checks hold\n  counted: \n  measured: m = {text}"
    assert verdict.as_dict()["measures"] == {"m": value}


# ---------------------------------------------------------------- what is not examined


TIMES = "when anything was released, and delays in seconds"
ABORTED = "aborted messages, which a read_uncommitted reader can see"
OTHERS = "earlier or other releases of the same records"
TRANSACTIONS = "whether each cluster was published in one transaction"
SUMMARY = "mse and mae in the summary, and its clipped values, displacement, excess span, delay and speed"


def unexamined(
    folder: Path, *, stream: dict[str, Any] | None, envelope: dict[str, Any] | None, summary: bool = False
) -> tuple[str, ...]:
    """Judge one cluster of two records; ``envelope``: fields beside the rows of an export, None for plain files."""
    policy = policy_of(
        {"who": SUBJECT, "x": quasi(0, 9, resolution=1)}, stream=None if stream is None else {"delta": 2} | stream
    )
    lines: list[Any] = [{"who": who, "x": 5} for who in ("a", "b")]
    rows: list[Any] = ['{"x":5}'] * 2
    if envelope is not None:
        lines = [{"partition": 0, "offset": n, "value": json.dumps(line)} for n, line in enumerate(lines)]
        rows = [{"partition": 0, "value": row} | envelope for row in rows]
    contents = {"in": lines, "out": rows, "evidence": [{"partition": 0, "cluster": 0, "offsets": [0, 1]}]}
    original, released, evidence = (write_lines(folder / f"{name}.jsonl", found) for name, found in contents.items())
    verdict = verify(policy, original, released, evidence, {"released": 2} if summary else None)
    assert verdict.exit_code == 0, verdict.text()
    assert verdict.as_dict()["not_examined"] == list(verdict.not_examined)
    return verdict.not_examined


@pytest.mark.parametrize(
    ("envelope", "question"),
    [
        ({}, "keys, headers and timestamps of released messages"),
        ({"key": None}, "headers and timestamps of released messages"),
        ({"headers": []}, "keys and timestamps of released messages"),
        ({"key": None, "headers": None}, "timestamps of released messages"),
    ],
)
def test_keys_and_headers_that_an_export_has_are_examined(
    tmp_path: Path, envelope: dict[str, Any], question: str
) -> None:
    found = unexamined(tmp_path, stream={}, envelope=envelope)
    assert found == (TRANSACTIONS, question, TIMES, ABORTED, OTHERS)


def test_an_ordered_release_promises_no_transaction_for_a_cluster(tmp_path: Path) -> None:
    found = unexamined(tmp_path, stream={"release": "ordered"}, envelope={})
    assert found == ("keys, headers and timestamps of released messages", TIMES, ABORTED, OTHERS)


def test_files_have_no_messages_and_tables_no_times(tmp_path: Path) -> None:
    assert unexamined(tmp_path, stream={}, envelope=None) == (TIMES, OTHERS)
    assert unexamined(tmp_path, stream=None, envelope=None) == (OTHERS,)
    assert unexamined(tmp_path, stream=None, envelope=None, summary=True) == (SUMMARY, OTHERS)
