"""docs/reports/reliability.md is what the page's program writes, and has a row of each nightly fault of a cluster."""

from __future__ import annotations

import ast

import pytest
from support.reliability import PAGE, ROOT, files_of_faults, page, printed

pytestmark = pytest.mark.unit


def test_the_page_is_generated_from_the_recorded_results() -> None:
    assert page(printed()) == PAGE.read_text(encoding="utf-8")


def test_each_test_that_records_a_fault_is_named_by_a_row() -> None:
    files = files_of_faults()
    assert len(files) >= 6
    tests = {
        f"{name}::{node.name}"
        for name in files
        for node in ast.parse((ROOT / name).read_text(encoding="utf-8")).body
        if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_")
    }
    assert {result.test for result in printed()} == tests


def test_no_row_has_a_record_twice_or_lost_or_a_value_that_must_not_be_published() -> None:
    for result in printed():
        counts = (result.twice, result.lost, result.under_k, result.canaries, result.accusations, result.gone)
        assert set(counts) <= {0, -1}, result
        assert result.twice == result.canaries == result.accusations == result.gone == 0, result
        assert result.records >= 1000, result
