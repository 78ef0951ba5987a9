"""Clusters that are inferred from the release."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle.naive_release import NaiveRelease, broken, make_records, make_release

pytestmark = pytest.mark.unit


def test_records_with_equal_unchanged_fields_need_evidence(tmp_path: Path) -> None:
    records = [{**record, "diagnosis": "flu", "ward": None} for record in make_records(60)]
    naive = NaiveRelease(tmp_path, records, make_release(tmp_path).clusters)
    assert naive.verify().exit_code == 0
    verdict = naive.verify(evidence=False)
    assert verdict.exit_code == 2
    assert "--evidence" in verdict.undecided[0]
    assert verdict.counts["clusters"] is None
    assert not [name for name in verdict.measures if "per_subject" in name]
    # Rows with equal quasi-identifiers are of whole clusters.
    assert verdict.measures["single_value_share.diagnosis"] == 1
    assert verdict.measures["single_value_records.diagnosis"] == 1
    assert verdict.measures["near_duplicate_clusters"] is None


def test_an_undecided_release_can_still_be_broken(tmp_path: Path) -> None:
    records = [{**record, "diagnosis": "flu", "ward": None} for record in make_records(60)]
    naive = NaiveRelease(tmp_path, records, make_release(tmp_path).clusters)
    naive.rows[0] = naive.rows[0][:2]
    assert broken(naive.verify(evidence=False)) == {"alone"}
    naive.regenerate()
    naive.rows[0][0] = naive.rows[0][0].replace("flu", "gout")
    verdict = naive.verify(evidence=False)
    assert verdict.exit_code == 1
    assert "traced" in broken(verdict)


def test_a_cluster_ends_where_the_byte_order_descends(tmp_path: Path) -> None:
    records = make_records(20)
    for number, record in enumerate(records):
        record |= {"age": 40, "income": 1000.0, "dose": 0.5, "patient": f"p{number}", "diagnosis": f"d{number:02}"}
    order = [*range(0, 20, 2), *range(1, 20, 2)]
    naive = NaiveRelease(tmp_path, records, [order[:10], order[10:]])
    verdict = naive.verify(evidence=False)
    assert verdict.exit_code == 0
    assert verdict.counts["clusters"] == 2
    naive.rows = [sorted(naive.rows[0] + naive.rows[1])]
    # Merged and sorted, both clusters are one to a reader.
    assert naive.verify(evidence=False).exit_code == 0


def test_a_run_is_split_at_each_descent(tmp_path: Path) -> None:
    records = make_records(11)
    for number, record in enumerate(records):
        record |= {"age": 40, "income": 1000.0, "dose": 0.5, "patient": f"p{number}", "diagnosis": f"d{number:02}"}
    # The byte order descends after the first row, so that row is a cluster of its own.
    naive = NaiveRelease(tmp_path, records, [[10], [*range(10)]])
    verdict = naive.verify(evidence=False)
    assert verdict.counts["clusters"] == 2
    assert verdict["subjects"].worst == 1
    assert broken(verdict) == {"subjects", "share"}


def test_a_file_sorted_as_a_whole_needs_evidence_if_unchanged_fields_come_first(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.rows = [sorted((row for rows in naive.rows for row in rows), key=str.encode)]
    assert naive.verify(table=True).exit_code == 0
    verdict = naive.verify(evidence=False)
    assert verdict.exit_code == 2
    assert "byte order as a whole" in verdict.undecided[0]
