"""A record that does not fit the policy was refused, not suppressed: in the quarantine and in the summary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shoal.cli import main

pytestmark = pytest.mark.unit


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Release twelve records, among them one that is no JSON and one with an invalid value; return the options."""
    monkeypatch.chdir(tmp_path)
    attributes = {
        "who": {"role": "identifier", "subject": True},
        "age": {"role": "quasi_identifier", "bounds": [0, 110]},
    }
    policy = {"attributes": attributes, "privacy": {"k": 3}, "stream": {"delta": 10}}
    Path("policy.yaml").write_text(json.dumps(policy))
    lines = [json.dumps({"who": f"p{number}", "age": 30 + number}) for number in range(10)]
    Path("in.jsonl").write_text("\n".join([*lines, "{", '{"who": "p", "age": "old"}']) + "\n")
    files = {"--evidence": "e.jsonl", "--quarantine": "q.jsonl", "--summary": "s.json"}
    given = [part for pair in files.items() for part in pair]
    assert main(["pipe", "policy.yaml", "-i", "in.jsonl", "-o", "out.jsonl", *given]) == 0
    return files


def verdict(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> tuple[int, set[str]]:
    """Return the exit code, and the names of broken checks."""
    capsys.readouterr()
    given = [part for pair in files.items() for part in pair]
    command = ["verify", "policy.yaml", "--original", "in.jsonl", "--released", "out.jsonl"]
    code = main([*command, *given, "--json", "verdict.json"])
    checks = json.loads(Path("verdict.json").read_text())["checks"]
    return code, {check["name"] for check in checks if check["status"] == "broken"}


def test_the_true_reasons_hold(release: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(release, capsys) == (0, set())


@pytest.mark.parametrize("offset", [10, 11])
def test_a_refused_record_that_is_listed_as_suppressed_is_broken(
    release: dict[str, str], capsys: pytest.CaptureFixture[str], offset: int
) -> None:
    path = Path("q.jsonl")
    references = [json.loads(line) for line in path.read_text().splitlines()]
    (one,) = (reference for reference in references if reference["offset"] == offset)
    one["reason"] = "suppressed"
    path.write_text("".join(json.dumps(reference, separators=(",", ":")) + "\n" for reference in references))
    del release["--summary"]
    assert verdict(release, capsys) == (1, {"reasons"})


@pytest.mark.parametrize(
    "stated",
    [
        *({"undecodable": 1}, {"undecodable": 2, "invalid": 1}, {"undecodable": 1, "age is 41": 1}),
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
def test_parts_of_a_message_count_for_its_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attributes: Any, limits: Any, message: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    document = {
        "attributes": {"age": {"role": "quasi_identifier", "bounds": [0, 100]}, **attributes},
        "subject": "every_record",
        "privacy": {"k": 2},
        "stream": {"delta": 5},
        "csv": {"output": {"encoding": "latin-1"}},
        "kafka": {"input": "in", "output": "out", "group": "g", **limits},
    }
    Path("policy.yaml").write_text(json.dumps(document))
    good = {
        "value": json.dumps({"age": 5, **({"note": "n"} if "note" in attributes else {})}),
        **({"key": "k"} if "key" in attributes else {"headers": [["tags", "[]"]]}),
    }
    Path("in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in [good, message, good, good]))
    files = ["--evidence", "e.jsonl", "--quarantine", "q.jsonl", "--summary", "s.json"]
    assert main(["pipe", "policy.yaml", "-i", "in.jsonl", "-o", "out.csv", *files]) == 0
    assert json.loads(Path("q.jsonl").read_text())["reason"] == "too_large"
    assert main(["verify", "policy.yaml", "--original", "in.jsonl", "--released", "out.csv", *files]) == 0


def test_a_long_first_line_with_a_byte_order_mark_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    attributes = {"age": {"role": "quasi_identifier", "bounds": [0, 110]}, "note": {"role": "confidential"}}
    document = {"attributes": attributes, "subject": "every_record", "privacy": {"k": 3}, "stream": {"delta": 10}}
    Path("policy.yaml").write_text(json.dumps(document))
    lines = [json.dumps({"age": age, "note": "n"}) for age in range(6)]
    long = json.dumps({"age": 7, "note": "n" * 3_000_000})
    Path("in.jsonl").write_text("\ufeff" + "".join(line + "\n" for line in [long, *lines]), encoding="utf-8")
    files = ["--evidence", "e.jsonl", "--quarantine", "q.jsonl", "--summary", "s.json"]
    assert main(["pipe", "policy.yaml", "-i", "in.jsonl", "-o", "out.jsonl", *files]) == 0
    assert json.loads(Path("q.jsonl").read_text())["reason"] == "too_large"
    assert main(["verify", "policy.yaml", "--original", "in.jsonl", "--released", "out.jsonl", *files]) == 0
