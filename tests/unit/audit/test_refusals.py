"""A record that does not fit the policy was refused, not suppressed: in the quarantine and in the summary."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from shoal.cli import main
from support.judged_runs import write_lines
from support.making import SUBJECT, quasi, unchanged_field

pytestmark = pytest.mark.unit

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
    write_lines(path, references)
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


def test_a_long_first_line_with_a_byte_order_mark_is_too_large() -> None:
    attributes = {"age": quasi(0, 110), "note": unchanged_field()}
    document = {"attributes": attributes, "subject": "every_record", "privacy": {"k": 3}, "stream": {"delta": 10}}
    long = json.dumps({"age": 7, "note": "n" * 3_000_000})
    pipe(document, ["\ufeff" + long, *({"age": age, "note": "n"} for age in range(6))])
    assert json.loads(Path("q.jsonl").read_text())["reason"] == "too_large"
    files = ["--original", "in.jsonl", "--released", "out.jsonl", *options_of(FILES)]
    assert main(["verify", "policy.yaml", *files]) == 0
