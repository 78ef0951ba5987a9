"""The reason of a refused record must be one that the record allows, in the quarantine and in the summary."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from shoal.audit.originals import read_originals
from shoal.audit.reading import InputFile
from shoal.cli import main
from shoal.policy import Policy
from shoal.policy.schema import Document
from support.hostile import CELLS, KINDS, MAX_BYTES, POLICY, Kind, good

pytestmark = pytest.mark.unit

BITS = {"undecodable": 1, "invalid": 2, "too_large": 4}
"""As the array of possible reasons holds them."""
REFUSED = [
    kind
    for kind in KINDS
    if (kind.outcome in {"undecodable", "invalid"} and "timestamp" not in kind.name) or kind.name.startswith("no JSON,")
]
"""The other records that are too large fit the policy; so do those that a clock refuses."""
NOT_CLEAR = {
    "nested a thousand deep",
    "half a surrogate pair",
    "surrogates in the wrong order",
    "half a surrogate pair in the subject",
}
"""They may be refused as invalid, too."""


def policy_with(**changed: Any) -> Policy:
    return Policy.from_document(Document.model_validate(POLICY | changed))


def possible(policy: Policy, path: Path) -> int:
    """Return the possible reasons of the last record of a file."""
    found = read_originals(policy, InputFile.of(path, policy.csv), "jsonl").refusals
    assert not found[:-1].any(), "good records were not refused"
    return int(found[-1])


def limited() -> Policy:
    return policy_with(kafka={"input": "in", "output": "out", "group": "g", "max_record_bytes": MAX_BYTES})


def assert_allowed(kind: str, outcome: str, found: int) -> None:
    assert found & BITS[outcome]
    if outcome != "too_large" and kind not in NOT_CLEAR:
        assert found == BITS[outcome]


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.name)
def test_a_message_of_an_export_allows_its_reason_and_no_other(kind: Kind, tmp_path: Path) -> None:
    value = kind.message(good(7), Random(1)).value
    text = None if value is None else value.decode(errors="surrogateescape")
    lines = [{"partition": 0, "offset": offset, "value": json.dumps(good(offset))} for offset in range(3)]
    path = tmp_path / "original.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in [*lines, {"partition": 0, "offset": 3, "value": text}]))
    policy = limited() if kind.outcome == "too_large" else policy_with()
    assert_allowed(kind.name, kind.outcome, possible(policy, path))


@pytest.mark.parametrize(
    "kind",
    [kind for kind in REFUSED if (value := kind.message(good(7), Random(1)).value) and b"\n" not in value],
    ids=lambda kind: kind.name,
)
def test_a_line_of_json_allows_its_reason_and_no_other(kind: Kind, tmp_path: Path) -> None:
    value = kind.message(good(7), Random(1)).value
    assert value is not None
    path = tmp_path / "original.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in [json.dumps(good(1)).encode(), value]))
    policy = limited() if kind.outcome == "too_large" else policy_with()
    assert_allowed(kind.name, kind.outcome, possible(policy, path))


@pytest.mark.parametrize("kind", [kind for kind in CELLS if kind.outcome != "released"], ids=lambda kind: kind.name)
def test_a_row_of_csv_allows_its_reason_and_is_not_too_large(kind: Any, tmp_path: Path) -> None:
    names = list(POLICY["attributes"])
    first, second = ({name: str(value).lower() for name, value in good(number).items()} for number in (1, 2))
    lines = [",".join(names), ",".join(first.values()), ",".join((second | kind.cells).values())]
    *others, last = (line.encode(errors="surrogateescape") for line in lines)
    path = tmp_path / "original.csv"
    path.write_bytes(b"".join(line + b"\n" for line in [*others, kind.line(last), others[-1]]))
    policy = policy_with()
    found = read_originals(policy, InputFile.of(path, policy.csv), "csv").refusals.tolist()
    assert found[::2] == [0, 0]
    assert found[1] & BITS[kind.outcome]
    assert not found[1] & BITS["too_large"]


# ---------------------------------------------------------------- in a verdict


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


@pytest.mark.parametrize(
    ("offset", "reason"),
    [
        (10, "invalid"),
        (10, "too_large"),
        (10, "suppressed"),
        (11, "undecodable"),
        (11, "too_large"),
        (11, "suppressed"),
    ],
)
def test_another_reason_of_a_reference_is_broken(
    release: dict[str, str], capsys: pytest.CaptureFixture[str], offset: int, reason: str
) -> None:
    path = Path("q.jsonl")
    references = [json.loads(line) for line in path.read_text().splitlines()]
    (one,) = (reference for reference in references if reference["offset"] == offset)
    one["reason"] = reason
    path.write_text("".join(json.dumps(reference, separators=(",", ":")) + "\n" for reference in references))
    del release["--summary"]
    assert verdict(release, capsys) == (1, {"reasons"})


@pytest.mark.parametrize(
    "stated",
    [
        {"undecodable": 2},
        {"undecodable": 1, "too_large": 1},
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


def test_too_large_is_undecided_in_a_topic_whose_service_may_have_another_limit(
    release: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = Path("in.jsonl").read_text().splitlines()
    exported = [{"partition": 0, "offset": offset, "value": line} for offset, line in enumerate(lines)]
    Path("in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in exported))
    rows = [{"partition": 0, "value": line} for line in Path("out.jsonl").read_text().splitlines()]
    Path("out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    del release["--summary"], release["--evidence"]
    path = Path("q.jsonl")
    path.write_text(path.read_text().replace("invalid", "too_large"))
    assert verdict(release, capsys) == (2, set())


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
    attributes = {
        "age": {"role": "quasi_identifier", "bounds": [0, 110]},
        "note": {"role": "confidential"},
    }
    document = {"attributes": attributes, "subject": "every_record", "privacy": {"k": 3}, "stream": {"delta": 10}}
    Path("policy.yaml").write_text(json.dumps(document))
    lines = [json.dumps({"age": age, "note": "n"}) for age in range(6)]
    long = json.dumps({"age": 7, "note": "n" * 3_000_000})
    Path("in.jsonl").write_text("\ufeff" + "".join(line + "\n" for line in [long, *lines]), encoding="utf-8")
    files = ["--evidence", "e.jsonl", "--quarantine", "q.jsonl", "--summary", "s.json"]
    assert main(["pipe", "policy.yaml", "-i", "in.jsonl", "-o", "out.jsonl", *files]) == 0
    assert json.loads(Path("q.jsonl").read_text())["reason"] == "too_large"
    assert main(["verify", "policy.yaml", "--original", "in.jsonl", "--released", "out.jsonl", *files]) == 0
