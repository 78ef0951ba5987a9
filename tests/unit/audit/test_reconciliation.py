"""Quarantine and summary against the files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from oracle.naive_release import broken, load_policy, make_release
from shoal.audit import verify
from shoal.cli import main
from shoal.errors import InputError
from support.judged_runs import write_lines
from support.making import SUBJECT, quasi

pytestmark = pytest.mark.unit

DEEP = '{"partition":0,"offset":1,"topic":"t","reason":%s}' % ("[" * 700 + "]" * 700)


@pytest.mark.parametrize(
    "summary",
    [
        "not json",
        "{}",
        '{"elapsed_s":1}',
        '{"released":{"a":null}}',
        '{"released":1.5}',
        '{"clusters":1,"share":{"max":"x"}}',
        "",
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
    assert any(
        "counts 60 of 62 records as read; if the input has grown" in warning.text for warning in verdict.warnings
    )
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


def test_a_summary_of_a_file_that_leaves_a_count_out_is_a_warning(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.summary |= {"records_in": 60, "suppressed": None}
    verdict = naive.verify(summary=True)
    assert verdict.exit_code == 0
    assert any("the summary does not state suppressed" in warning.text for warning in verdict.warnings)


# ---------------------------------------------------------------- records that were refused


FILES = {"--evidence": "e.jsonl", "--quarantine": "q.jsonl", "--summary": "s.json"}


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def options_of(files: dict[str, str]) -> list[str]:
    return [part for pair in files.items() for part in pair]


def pipe(document: dict[str, Any], lines: Iterable[object], target: str = "out.jsonl") -> None:
    write_lines(Path("policy.yaml"), [document])
    write_lines(Path("in.jsonl"), lines)
    assert main(["pipe", "policy.yaml", "-i", "in.jsonl", "-o", target, *options_of(FILES)]) == 0


@pytest.fixture
def release() -> dict[str, str]:
    """Release twelve records, among them one that is no JSON and one with an invalid value; return the options."""
    attributes = {"who": SUBJECT, "age": quasi(0, 110)}
    records = [{"who": f"p{number}", "age": 30 + number} for number in range(10)]
    lines = [*records, "{", {"who": "p", "age": "old"}]
    pipe({"attributes": attributes, "privacy": {"k": 3}, "stream": {"delta": 10}}, lines)
    return dict(FILES)


def verdict(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> tuple[int, set[str]]:
    """Return the exit code, and the names of broken checks."""
    capsys.readouterr()
    command = ["verify", "policy.yaml", "--original", "in.jsonl", "--released", "out.jsonl"]
    code = main([*command, *options_of(files), "--json", "verdict.json"])
    checks = json.loads(Path("verdict.json").read_text())["checks"]
    return code, {check["name"] for check in checks if check["status"] == "broken"}


@pytest.mark.parametrize(
    "stated",
    [
        {"undecodable": 1},
        {"undecodable": 2, "invalid": 1},
        {"undecodable": 1, "age is 41": 1},
        {"undecodable": 1, "invalid": 1, "age is 41": 0},
    ],
)
def test_other_reasons_of_a_summary_are_broken(
    release: dict[str, str], capsys: pytest.CaptureFixture[str], stated: dict[str, int]
) -> None:
    path = Path("s.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quarantined": stated}))
    assert verdict(release, capsys) == (1, {"accounts"})


@pytest.mark.parametrize(
    ("attributes", "limits", "message"),
    [
        (
            {"tags": {"role": "confidential", "type": "json", "from": "header:tags", "max_bytes": 50}},
            {},
            {"value": '{"age": 5}', "headers": [["tags", json.dumps(["x" * 60])]]},
        ),
        (
            {"note": {"role": "confidential"}, "key": {"role": "confidential", "from": "key"}},
            {"max_record_bytes": 100},
            {"value": '{"age": 5, "note": "€"}', "key": "k" * 97},
        ),
    ],
    ids=["a long header of type json", "a value and a key that are too long together"],
)
def test_parts_of_a_message_count_for_its_length(attributes: Any, limits: Any, message: dict[str, Any]) -> None:
    document = {
        "attributes": {"age": quasi(0, 100), **attributes},
        "subject": "every_record",
        "privacy": {"k": 2},
        "stream": {"delta": 5},
        "csv": {"output": {"encoding": "latin-1"}},
        "kafka": {"input": "in", "output": "out", "group": "g", **limits},
    }
    good = {
        "value": json.dumps({"age": 5, **({"note": "n"} if "note" in attributes else {})}),
        **({"key": "k"} if "key" in attributes else {"headers": [["tags", "[]"]]}),
    }
    pipe(document, [good, message, good, good], "out.csv")
    assert json.loads(Path("q.jsonl").read_text())["reason"] == "too_large"
    files = ["--original", "in.jsonl", "--released", "out.csv", *options_of(FILES)]
    assert main(["verify", "policy.yaml", *files]) == 0
