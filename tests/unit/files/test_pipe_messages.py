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


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            '{"age":4}',
            r"in\.jsonl, line 1: not a message with value, headers, key, timestamp; .*or remove 'from' from the policy",
        ),
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


INVALID: list[tuple[str | dict[str, Any], str]] = [
    ("", "undecodable"),
    ("rubbish", "undecodable: not JSON"),
    (GOOD.replace(AGE, "NaN"), "undecodable"),
    (GOOD.replace('"person 7"', DEEP), "undecodable"),
    (GOOD.replace('"person 7"', "[" * 50_000), "undecodable"),
    ({"value": None}, "undecodable: no value; set tombstones: drop to leave such messages out"),
    ({"value": "{"}, "undecodable"),
    ({"value": "\ud800"}, "undecodable"),
    ('{"age":4}', "invalid"),
    (GOOD.replace('"key"', '"k"'), NO_MESSAGE),
    (GOOD.replace("{", '{"broker": "x", ', 1), NO_MESSAGE),
    (GOOD.replace("{", '{"key": "x", ', 1), "invalid"),
    ({"headers": None}, NO_MESSAGE),
    ({"headers": [["ill"]]}, "invalid"),
    ({"headers": [["ill", "x"]]}, "invalid"),
    ({"headers": [["ill", "x"], ["ill", "x"], ["dose", "1"]]}, "invalid"),
    ({"headers": [["ill", {"base64": "/w=="}], ["dose", "1"]]}, "undecodable"),
    ({"timestamp": T + 0.5}, "invalid"),
    ({"timestamp": -1}, "invalid"),
    ({"timestamp": 10**4299}, "invalid"),
    ({"value": "[]"}, "invalid: a JSON array, or a part of one"),
    ({"value": {}}, "invalid: age: missing"),
    ({"value": {"age": 4, "who": "not the key"}}, "invalid"),
    ({"key": None}, "invalid: who: the message has no key"),
    ({"key": "  "}, "invalid"),
    ({"key": {"base64": "/w=="}}, "undecodable"),
]


def line_of(change: str | dict[str, Any]) -> str:
    return change if isinstance(change, str) else json.dumps(message(7, **change))


@pytest.mark.parametrize("target", ["jsonl", "csv"])
def test_only_invalid_lines_are_rejected_by_pipe_and_judge(tmp_path: Path, target: str) -> None:
    messages: list[dict[str, Any] | str] = [message(number) for number in range(60)]
    for index, (change, _) in enumerate(INVALID):
        messages.insert(2 * index + 1, line_of(change))
    out, verdict = run(tmp_path, policy_of(tmp_path), messages, target)
    references = [json.loads(one) for one in (tmp_path / "quarantine").read_text().splitlines()]
    expected = [(2 * index + 1, reason.partition(":")[0]) for index, (_, reason) in enumerate(INVALID)]
    assert [(one["offset"], one["reason"]) for one in references] == expected
    assert (verdict.counts["unusable"], verdict.counts["rows"]) == (len(INVALID), 60)
    assert b"person" not in out.read_bytes()
    assert b"trace" not in out.read_bytes()


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


def test_a_byte_order_mark_does_not_reject_a_record(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, {"who": {"role": "identifier", "subject": True}, "age": ATTRIBUTES["age"]})
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\ufeff" + "".join(json.dumps({"who": f"p{n}", "age": n}) + "\n" for n in range(4)))
    run_pipe(policy, Files(str(source), str(out), evidence=str(tmp_path / "evidence")))
    assert out.read_text().splitlines() == ['{"age":2}'] * 4
    assert verify(policy, source, out, tmp_path / "evidence").exit_code == 0
