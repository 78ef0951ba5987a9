"""Causes of broken checks: they are told in place of the many cases that follow from them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from oracle.naive_release import broken, load_policy, make_release
from shoal.audit import Verdict, verify
from shoal.audit.verdict import Finding
from support.judged_runs import judged, released
from support.making import SUBJECT, policy_of, quasi, unchanged_field

pytestmark = pytest.mark.unit


def first_cause(verdict: Verdict) -> Finding:
    """Return the only cause of a broken release, and check that it is told before anything else and without values."""
    assert verdict.exit_code == 1
    (found,) = verdict.causes
    lines = verdict.text().splitlines()
    assert lines[0].startswith("broken: ")
    assert lines[1] == f"  cause: {found.line()}"
    assert lines[2] == f"  broken as well: {', '.join(broken_names(verdict))} (-v shows the cases)"
    assert not any(line.startswith("  BROKEN") for line in lines)
    assert "  BROKEN" in verdict.text(verbose=True)
    plain = json.loads(json.dumps(verdict.as_dict()))
    assert plain["causes"] == [found.as_dict()]
    assert "é" not in found.line()  # a letter of every diagnosis
    return found


def broken_names(verdict: Verdict) -> list[str]:
    return [check.name for check in verdict.checks if check.status == "broken"]


def test_a_release_that_holds_or_has_one_wrong_row_has_no_cause(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    assert naive.verify(summary=True).causes == ()
    naive.rows[3][1] = naive.rows[4][0]
    verdict = naive.verify(summary=True)
    assert verdict.exit_code == 1
    assert verdict.causes == ()
    assert (
        "\n  BROKEN: every row is the recomputed row of a member of a cluster (60 examined, 1 failed)" in verdict.text()
    )


# ---------------------------------------------------------------- the release was saved again


@pytest.mark.parametrize("csv", [False, True])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda content: b"\xef\xbb\xbf" + content, "byte_order_mark"),
        (lambda content: content.replace(b"\n", b"\r\n"), "line_ends"),
    ],
)
def test_traces_of_an_editor_in_the_release(
    tmp_path: Path,
    csv: bool,  # noqa: FBT001
    change: Callable[[bytes], bytes],
    code: str,
) -> None:
    paths = make_release(tmp_path, csv=csv).write()
    paths["released"].write_bytes(change(paths["released"].read_bytes()))
    found = first_cause(verify(load_policy(tmp_path), paths["original"], paths["released"], paths["evidence"]))
    assert found.code == code
    assert "saved it again" in found.remedy


# ---------------------------------------------------------------- the original


def test_an_original_that_was_cut(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.original_lines = [json.dumps(record) for record in naive.records[:50]]
    found = first_cause(naive.verify(summary=True))
    assert (found.code, found.figures) == ("original_cut", {"records": 50, "records_in": 60, "unknown": 10})
    assert "has 50 of the 60 records that the summary counts" in found.text
    assert "the evidence names 10 records that the original does not have" in first_cause(naive.verify()).text


@pytest.mark.parametrize("lines", [2, 1, -1])
def test_records_more_or_fewer_at_the_beginning(tmp_path: Path, lines: int) -> None:
    naive = make_release(tmp_path)
    texts = [json.dumps(record) for record in naive.records]
    naive.original_lines = [*texts[:lines], *texts] if lines > 0 else [*texts[-lines:], texts[0], texts[1]]
    found = first_cause(naive.verify())
    assert (found.code, found.figures) == ("original_moved", {"records": lines})
    assert ("more" if lines > 0 else "fewer") in found.text


def test_an_original_of_another_time(tmp_path: Path) -> None:
    naive, other = make_release(tmp_path), make_release(tmp_path, seed=3)
    naive.original_lines = [json.dumps(record | {"diagnosis": "x"}) for record in other.records]
    found = first_cause(naive.verify())
    assert (found.code, found.figures) == ("original_changed", {"share": 1})
    assert "saved the original again" not in found.text


def test_an_original_whose_cells_got_other_line_ends(tmp_path: Path) -> None:
    fields = {"who": SUBJECT, "x": quasi(0, 99), "note": unchanged_field("string")}
    policy = policy_of(fields, stream={"delta": 9}, csv={"multiline": True})
    rows = "".join(f'p{number},{number},"a\nb{number % 3}"\n' for number in range(40))
    paths = released(tmp_path, policy, f"who,x,note\n{rows}", "original.csv")
    assert judged(policy, paths, "evidence").causes == ()
    paths["original"].write_bytes(paths["original"].read_bytes().replace(b"\n", b"\r\n"))
    (found,) = judged(policy, paths, "evidence").causes
    assert found.code == "original_changed"
    assert "a program has saved the original again" in found.text


# ---------------------------------------------------------------- the evidence


def test_evidence_of_another_run_over_the_same_original(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    order = list(range(60))
    random.Random(1).shuffle(order)
    naive.evidence = [line | {"offsets": [order[place] for place in line["offsets"]]} for line in naive.evidence]
    found = first_cause(naive.verify())
    assert (found.code, found.figures) == ("no_agreement", {"share": 1})
    assert found.remedy.endswith("if this is it, the release is wrong")


def test_evidence_of_another_number_of_records(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.rows = [rows[1:] for rows in naive.rows]
    found = first_cause(naive.verify())
    assert (found.code, found.figures) == ("other_evidence", {"records": 60, "rows": 49})


def test_evidence_of_other_partitions(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.evidence = [line | {"partition": 3} for line in naive.evidence]
    found = first_cause(naive.verify())
    assert (found.code, found.text) == ("other_evidence", "evidence and original have no partition in common")


def test_evidence_of_another_policy(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.evidence = [line | {"policy": "0" * 64} for line in naive.evidence]
    found = first_cause(naive.verify())
    assert found.code == "other_policy"
    assert "give the policy under which the release was made" in found.text


def test_rows_of_another_form_are_no_reason_to_blame_evidence_or_original(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.rows = [[row.replace('"age":', '"years":') for row in rows] for rows in naive.rows]
    verdict = naive.verify()
    assert {"columns", "nothing_else"} <= broken(verdict)
    assert verdict.causes == ()
