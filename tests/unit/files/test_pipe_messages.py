"""`shoal pipe` on exported Kafka messages with keys, headers and timestamps; the judge checks every release."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from shoal.audit import Verdict, verify
from shoal.errors import InputError
from shoal.files import Files, run_pipe
from shoal.policy import Policy

pytestmark = pytest.mark.unit

T = 1_700_000_000_000
ATTRIBUTES: dict[str, Any] = {
    "who": {"role": "identifier", "subject": True, "from": "key"},
    "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True},
    "at": {"role": "quasi_identifier", "bounds": [T, T + 100_000], "resolution": 1000, "from": "timestamp"},
    "ill": {"role": "confidential", "type": "string", "from": "header:ill"},
    "dose": {"role": "confidential", "type": "number", "from": "header:dose"},
}


def policy_of(folder: Path, attributes: dict[str, Any] = ATTRIBUTES, **more: Any) -> Policy:
    path = folder / "policy.yaml"
    path.write_text(json.dumps({"attributes": attributes, "privacy": {"k": 3}, "stream": {"delta": 12}, **more}))
    return Policy.load(path)


def message(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "partition": 0,
        "offset": 2 * number,
        "key": f"person {number % 30}",
        "headers": [["ill", f"ill {number}"], ["trace", f"t{number}"], ["dose", f"{number}.50"]],
        "timestamp": T + 997 * number,
        "value": json.dumps({"age": number * 37 % 111}),
        **changes,
    }


BAD: list[dict[str, Any]] = [
    {"key": None},
    {"key": "  "},
    {"key": {"base64": "/w=="}},
    {"headers": [["ill", "x"]]},
    {"headers": [["ill", "x"], ["ill", "x"], ["dose", "1"]]},
    {"headers": [["ill", "x"], ["dose", "much"]]},
    {"headers": [["ill", None], ["dose", "1"]]},
    {"headers": [["ill", {"base64": "/w=="}], ["dose", "1"]]},
    {"timestamp": -1},
    {"value": None},
    {"value": "{"},
    {"value": {"age": 4, "who": "not the key"}},
    {"value": {"age": 4, "ill": "not the header"}},
    {"value": ["age"]},
    {"value": "\ud800"},
]


def run(
    folder: Path, policy: Policy, messages: Sequence[dict[str, Any] | str], target: str = "jsonl"
) -> tuple[Path, Verdict]:
    source, out = folder / "in.jsonl", folder / f"out.{target}"
    source.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in messages))
    evidence, quarantine, summary = (str(folder / name) for name in ("evidence", "quarantine", "summary"))
    run_pipe(policy, Files(str(source), str(out), None, None, summary, evidence, quarantine))
    verdict = verify(policy, source, out, evidence, summary, quarantine=quarantine)
    assert verdict.exit_code == 0, verdict.text()
    return out, verdict


@pytest.mark.parametrize("target", ["jsonl", "csv"])
def test_a_release_of_messages_passes_the_judge(tmp_path: Path, target: str) -> None:
    messages = [message(number) for number in range(60)]
    for index, bad in enumerate(BAD):
        messages.insert(4 * index, message(1000 + index, **bad))
    out, verdict = run(tmp_path, policy_of(tmp_path), messages, target)
    assert verdict.counts["unusable"] == len(BAD)
    assert verdict.counts["rows"] == 60
    assert not verdict.warnings or all("published unchanged" in warning for warning in verdict.warnings)
    text = out.read_bytes()
    assert b"person" not in text
    assert b"trace" not in text


@pytest.mark.parametrize("part", ["key", "headers", "timestamp"])
def test_the_judge_finds_a_changed_envelope(tmp_path: Path, part: str) -> None:
    policy = policy_of(tmp_path)
    messages = [message(number) for number in range(60)]
    out, verdict = run(tmp_path, policy, messages)
    assert verdict.exit_code == 0
    changes: dict[str, dict[str, Any]] = {
        "key": {"key": "the same for all"},
        "headers": {"headers": [["ill", "another"], ["dose", "1"]]},
        "timestamp": {"timestamp": T + 50_000},
    }
    changed = changes[part]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(one | changed) + "\n" for one in messages))
    verdict = verify(policy, tmp_path / "in.jsonl", out, tmp_path / "evidence")
    assert verdict.exit_code == 1, verdict.text()
    if part == "key":
        assert verdict["subjects"].failed > 0


def test_the_release_does_not_depend_on_the_spelling_of_messages(tmp_path: Path) -> None:
    policy = policy_of(tmp_path)
    first, _ = run(tmp_path, policy, [message(number) for number in range(60)])
    expected = first.read_bytes()
    respelled = []
    for number in range(60):
        one = message(number)
        one["value"] = {"age": float(number * 37 % 111)}
        one["key"] = f" person {number % 30}\t"
        one["headers"] = [["dose", f"+{number}.5e0"], ["more", None], ["ill", f"ill {number}"]]
        respelled.append({name: one[name] for name in reversed(list(one)) if name not in {"partition", "offset"}})
    again, _ = run(tmp_path, policy, respelled)
    assert again.read_bytes() == expected


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            '{"age":4}',
            r"in\.jsonl, line 1: not a message with value, headers, key, timestamp; .*or remove 'from' from the policy",
        ),
        ("[]", "line 1: not a message"),
        ('{"value":{},"key":"a","timestamp":1}', r"line 1: .*attributes\.ill is read from header:ill"),
        ('{"value":{},"headers":[],"timestamp":1}', r"line 1: .*attributes\.who is read from key"),
        ('{"value":{},"key":"a","key":"b","headers":[],"timestamp":1}', "line 1: not a message"),
        ("", "line 1: not a message"),
    ],
)
def test_a_file_that_does_not_start_with_a_message_is_refused(tmp_path: Path, line: str, words: str) -> None:
    policy, source = policy_of(tmp_path), tmp_path / "in.jsonl"
    source.write_text(f"{line}\n{json.dumps(message(0))}\n{json.dumps(message(1))}\n")
    with pytest.raises(InputError, match=words):
        run_pipe(policy, Files(str(source), str(tmp_path / "out.jsonl")))
    assert not (tmp_path / "out.jsonl").exists()


GOOD = json.dumps(message(7))
DEEP = "[" * 70 + "]" * 70
AGE = '"{\\"age\\": 37}"'


NO_MESSAGE = (
    "invalid: not a message in the form of docs/files.md: value, and key, headers or timestamp if the policy reads them"
)
NO_ENVELOPE = "invalid: the key, a header or the timestamp does not fit the policy"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "undecodable"),
        ("   ", "undecodable"),
        ("rubbish", "undecodable: not JSON"),
        (GOOD.replace(AGE, "NaN"), "undecodable"),
        (GOOD[:-9], "undecodable"),
        (GOOD.replace(AGE, '{"age": ' + DEEP + "}"), "undecodable"),
        (GOOD.replace('"person 7"', DEEP), "undecodable"),
        (GOOD.replace('"person 7"', "[" * 50_000), "undecodable"),
        (json.dumps(message(7, value=None)), "undecodable: no value; set tombstones: drop to leave such messages out"),
        ("[]", "invalid"),
        ('{"age":4}', "invalid"),
        (GOOD.replace('"key"', '"k"'), NO_MESSAGE),
        (GOOD.replace("{", '{"topic": "x", ', 1), NO_MESSAGE),
        (GOOD.replace("{", '{"key": "x", ', 1), "invalid"),
        (json.dumps(message(7, headers=None)), NO_MESSAGE),
        (json.dumps(message(7, headers={})), "invalid"),
        (json.dumps(message(7, headers=[["ill"]])), "invalid"),
        (json.dumps(message(7, timestamp=None)), "invalid"),
        (json.dumps(message(7, timestamp="1")), "invalid"),
        (json.dumps(message(7, timestamp=T + 0.5)), "invalid"),
        (json.dumps(message(7, timestamp=1e12)), "invalid"),
        (json.dumps(message(7, timestamp=10**4299)), "invalid"),
        (json.dumps(message(7, value="[]")), "invalid: not a JSON object; each line must be one object"),
        (json.dumps(message(7, value={})), "invalid: age: missing"),
        (json.dumps(message(7, key=None)), NO_ENVELOPE),
    ],
)
def test_only_the_invalid_line_is_rejected_by_pipe_and_judge_with_its_reason(
    tmp_path: Path, line: str, reason: str
) -> None:
    assert AGE in GOOD
    policy, lines = policy_of(tmp_path), [message(number) for number in range(40)]
    out, verdict = run(tmp_path, policy, [*lines[:20], line, *lines[20:]])
    references = [json.loads(one) for one in (tmp_path / "quarantine").read_text().splitlines()]
    assert [(one["offset"], one["reason"]) for one in references] == [(20, reason.partition(":")[0])]
    assert len(out.read_text().splitlines()) == 40
    assert verdict.counts["unusable"] == 1
    if ":" in reason:
        report = run_pipe(policy, Files(str(tmp_path / "in.jsonl"), str(out)))
        assert report.refusals.texts(report.records_in) == [f"1 of 41 {reason}"]


def test_unused_parts_of_a_message_are_not_validated(tmp_path: Path) -> None:
    attributes = {"who": ATTRIBUTES["who"], "age": ATTRIBUTES["age"]}
    odd: list[dict[str, Any]] = [{"headers": None}, {"headers": [[1]]}, {"timestamp": None}, {"timestamp": 1.5}]
    odd += [{"offset": "x"}]
    lines = [message(number, **(odd[number] if number < len(odd) else {})) for number in range(30)]
    out, _ = run(tmp_path, policy_of(tmp_path, attributes), lines)
    assert len(out.read_text().splitlines()) == 30


def test_a_plain_file_is_refused_where_the_policy_reads_keys(tmp_path: Path) -> None:
    policy, source, out = policy_of(tmp_path), tmp_path / "in.csv", tmp_path / "out.jsonl"
    source.write_text("who,age\n")
    with pytest.raises(InputError, match=r"in\.csv: attributes\.who is read from key, which no CSV file has"):
        run_pipe(policy, Files(str(source), str(out)))
    out.write_text("")
    with pytest.raises(InputError, match=r"in\.csv, line 1: attributes\.who is read from key: give JSON lines of"):
        verify(policy, source, out)


def test_an_export_with_keys_is_accepted_if_the_policy_uses_no_key(tmp_path: Path) -> None:
    attributes = {"who": {"role": "identifier", "subject": True}, "age": ATTRIBUTES["age"]}
    policy = policy_of(tmp_path, attributes)
    values = [{"who": f"p{number}", "age": number} for number in range(3)]
    lines = [message(number, value=value) for number, value in enumerate(values)]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    rows = [{"partition": 0, "value": '{"age":1}'}] * 3
    (tmp_path / "out.jsonl").write_text("\n".join(map(json.dumps, rows)))
    evidence = {"partition": 0, "cluster": 0, "offsets": [0, 2, 4]}
    (tmp_path / "evidence").write_text(json.dumps(evidence))
    verdict = verify(policy, tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "evidence")
    assert verdict.exit_code == 0, verdict.text()


def test_a_message_without_an_offset_is_refused_by_the_judge(tmp_path: Path) -> None:
    policy = policy_of(tmp_path)
    bare = [{name: part for name, part in message(n).items() if name not in {"partition", "offset"}} for n in range(30)]
    out, _ = run(tmp_path, policy, bare)
    export = [{"partition": 0, "value": row} for row in out.read_text().splitlines()]
    out.write_text("\n".join(map(json.dumps, export)))
    with pytest.raises(InputError, match="give JSON lines of headers, key, offset, partition, timestamp, value"):
        verify(policy, tmp_path / "in.jsonl", out, tmp_path / "evidence")


def test_a_byte_order_mark_does_not_reject_a_record(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, {"who": {"role": "identifier", "subject": True}, "age": ATTRIBUTES["age"]})
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\ufeff" + "".join(json.dumps({"who": f"p{n}", "age": n}) + "\n" for n in range(4)))
    run_pipe(policy, Files(str(source), str(out), evidence=str(tmp_path / "evidence")))
    assert out.read_text().splitlines() == ['{"age":2}'] * 4
    assert verify(policy, source, out, tmp_path / "evidence").exit_code == 0
