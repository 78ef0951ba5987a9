"""Quarantine and summary against the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from oracle.naive_release import broken, load_policy, make_release
from shoal.audit import Verdict, verify
from shoal.errors import InputError

pytestmark = pytest.mark.unit

DEEP = '{"partition":0,"offset":1,"topic":"t","reason":%s}' % ("[" * 700 + "]" * 700)


@pytest.mark.parametrize(
    "summary",
    [
        "not json",
        "[]",
        "{}",
        '{"elapsed_s":1}',
        '{"released":"many"}',
        '{"released":true}',
        '{"released":{"a":null}}',
        '{"released":1.5}',
        '{"clusters":1,"share":{"max":"x"}}',
        "",
        '{"released":1,"x":%s}' % ("[" * 100 + "]" * 100),
        '{"released":1,"x":%s}' % ('{"x":' * 700 + "0" + "}" * 700),
        '{"released":1,"x":%s}' % ("9" * 5000),
    ],
)
def test_a_malformed_summary_is_refused(tmp_path: Path, summary: str) -> None:
    naive = make_release(tmp_path)
    paths = naive.write()
    paths["summary"].write_text(summary)
    with pytest.raises(InputError, match="summary"):
        verify(load_policy(tmp_path), paths["original"], paths["released"], paths["evidence"], paths["summary"])


@pytest.mark.parametrize(
    ("changed", "agrees"),
    [
        ({"subjects": {"min": 5.002}}, False),
        ({"subjects": {"min": 5.0}}, True),
        ({"cluster_size": {"mean": 5.455}}, True),
        ({"cluster_size": {"mean": 5.46}}, False),
        ({"suppressed": None, "records_in": 60, "quarantined": {"invalid": 3}}, False),
        ({"suppressed": None, "records_in": 60, "quarantined": {}}, True),
    ],
)
def test_counts_must_agree_exactly_and_fractions_to_four_digits(tmp_path: Path, changed: Any, agrees: bool) -> None:  # noqa: FBT001
    naive = make_release(tmp_path)
    naive.summary |= changed
    assert (naive.verify(summary=True)["accounts"].status == "holds") is agrees


@pytest.mark.parametrize("line", ["x", "7", '{"partition":0}', '{"partition":0,"offset":"1"}', DEEP])
def test_a_quarantine_of_another_shape_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "quarantine.jsonl"
    path.write_text('{"topic":"t","partition":0,"offset":1,"reason":"invalid"}\n' + line)
    with pytest.raises(InputError, match=r"quarantine\.jsonl, line 2: .*; export the quarantine again"):
        make_release(tmp_path).verify(quarantine=path)


def test_fields_that_are_null_are_not_compared(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.summary = dict.fromkeys(naive.summary) | {"released": 60}
    verdict = naive.verify(summary=True)
    assert verdict["accounts"].examined == 1
    assert verdict.exit_code == 0


def test_the_summary_of_a_table_is_compared(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    sizes = naive.summary["cluster_size"]
    naive.summary = {"records": 60, "clusters": 11, "cluster_size": sizes, "algorithm": "mdav"}
    assert naive.verify(summary=True).exit_code == 0
    assert naive.verify(summary=True)["accounts"].examined == 5
    naive.summary["records"] = 59
    assert "accounts" in broken(naive.verify(summary=True))


def test_blank_lines_are_records_except_at_the_end(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.original_lines = [*map(json.dumps, naive.records), "", " ", ""]
    assert naive.verify(summary=True).exit_code == 0
    naive.original_lines[-1] = "{}"
    naive.summary |= {"records_in": 63, "quarantined": {"undecodable": 2, "invalid": 1}}
    assert naive.verify(summary=True).exit_code == 0
    # A quarantine file must name every unpublished record, also those that are not usable.
    path = tmp_path / "quarantine.jsonl"
    path.write_text(json.dumps({"topic": "t", "partition": 0, "offset": 60, "reason": "undecodable"}) + "\n")
    assert broken(naive.verify(summary=True, quarantine=path)) == {"complete"}


def test_records_after_the_last_one_read_are_a_warning_and_break_complete(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.original_lines = [json.dumps(record) for record in [*naive.records, *naive.records[:2]]]
    verdict = naive.verify(summary=True, partial=True)
    assert verdict.exit_code == 0
    assert any("counts 60 of 62 records as read; if the input has grown" in warning for warning in verdict.warnings)
    assert broken(naive.verify(summary=True)) == {"complete"}


def test_no_record_after_the_last_one_read_may_be_released_or_referenced(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.summary |= {"records_in": 59, "released": 60, "held": -1}
    assert broken(naive.verify(summary=True)) == {"accounts"}
    naive = make_release(tmp_path)
    naive.original_lines = [json.dumps(record) for record in [*naive.records, *naive.records[:2]]]
    path = tmp_path / "quarantine.jsonl"
    for offset in (60, 61):
        path.write_text(json.dumps({"topic": "t", "partition": 0, "offset": offset, "reason": "invalid"}) + "\n")
        assert {"accounts", "reasons"} <= broken(naive.verify(summary=True, quarantine=path))


def test_an_incomplete_last_record_is_not_missing(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    paths = naive.write()
    policy, whole = load_policy(tmp_path), paths["original"].read_text()

    def verdict_of(text: str) -> Verdict:
        paths["original"].write_text(text)
        return verify(policy, *paths.values())

    begun = verdict_of(whole + '{"patient":"p')
    assert begun.exit_code == 0
    assert "the last record has no end" in begun["complete"].note
    assert broken(verdict_of(whole + '{"patient":"p\n')) == {"complete"}
    assert broken(verdict_of(whole + '{}\n{"patient":"p')) == {"complete"}


def test_a_summary_of_a_file_that_leaves_a_count_out_is_a_warning(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.summary |= {"records_in": 60, "suppressed": None}
    verdict = naive.verify(summary=True)
    assert verdict.exit_code == 0
    assert any("the summary does not state suppressed" in warning for warning in verdict.warnings)


def test_another_number_of_refused_records_of_a_file_is_broken(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.summary |= {"released": 60, "records_in": 63, "quarantined": {"invalid": 3}}
    naive.original_lines = [*map(json.dumps, naive.records), "{}", "[]", json.dumps(naive.records[0])]
    verdict = naive.verify(summary=True)
    assert broken(verdict) == {"accounts"}
    assert "quarantined" in verdict["accounts"].places
