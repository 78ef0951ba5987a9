"""`shoal pipe` and `shoal batch` on nested messages and envelopes; the judge checks every release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shoal.audit import verify
from shoal.errors import InputError
from shoal.files import Files, run_batch, run_pipe
from shoal.policy import Policy
from shoal.tables import AlgorithmSpec

pytestmark = pytest.mark.unit

ATTRIBUTES: dict[str, Any] = {
    "who": {"role": "identifier", "subject": True, "from": "patient.id"},
    "weight": {"role": "quasi_identifier", "bounds": [0, 300], "from": "vitals.weight", "to": "out.vitals.weight"},
    "born": {
        "role": "quasi_identifier",
        "scale": "time",
        "resolution": "year",
        "bounds": ["1900-01-01", "2030-01-01"],
        "from": "value.patient.born",
        "missing": "group",
    },
    "icd": {"role": "confidential", "type": "json", "max_bytes": 40, "from": "patient.icd", "to": "out.icd"},
    "ward": {"role": "confidential", "type": "string"},
}
SCHEMA = {"type": "struct", "fields": [], "optional": False, "name": "visit"}


def policy_of(folder: Path, *, streams: bool = True, **more: Any) -> Policy:
    path = folder / "policy.yaml"
    stream = {"stream": {"delta": 12}} if streams else {}
    path.write_text(json.dumps({"attributes": ATTRIBUTES, "privacy": {"k": 3}, **stream, **more}))
    return Policy.load(path)


def visit(number: int, **more: Any) -> dict[str, Any]:
    patient: dict[str, Any] = {"id": f"p{number % 30}", "icd": [f"I{number % 7}", {"n": number % 5 / 2}]}
    if number % 5:
        patient["born"] = f"{1930 + number * 7 % 80}-03-01"
    return {"patient": patient, "vitals": {"weight": number * 37 % 291 + 0.5}, "ward": f"w{number % 3}", **more}


def changes(count: int) -> list[dict[str, Any]]:
    """Return messages of Debezium; of each ten, one is a delete."""
    messages = []
    for number in range(count):
        before = visit(number)
        change = {"before": before, "after": None, "source": {"lsn": number}, "op": "d", "ts_ms": number}
        if number % 10 != 3:
            change |= {"after": visit(number), "op": "u" if number % 2 else "c"}
        messages.append(change)
    return messages


BAD: list[dict[str, Any]] = [
    {"op": "c"},
    {"after": visit(1)},
    {"op": "c", "after": visit(1, more=1)},
    {"op": "c", "after": visit(1, vitals=None)},
    {"op": "c", "after": visit(1, vitals={"weight": 80, "height": 1.8})},
    {"op": "c", "after": visit(1, patient={"id": "p1", "icd": "x" * 50})},
    {"op": "c", "after": visit(1, patient={"icd": []})},
]


def run(folder: Path, policy: Policy, messages: list[Any], *, is_table: bool = False) -> list[str]:
    """Release messages, which the judge accepts; return the rows."""
    (folder / "in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in messages))
    names = ("out.jsonl", "evidence", "quarantine", "summary")
    out, evidence, quarantine, summary = (str(folder / one) for one in names)
    files = Files(str(folder / "in.jsonl"), out, None, None, summary, evidence, quarantine)
    if is_table:
        run_batch(policy, files, AlgorithmSpec("mdav"))
    else:
        run_pipe(policy, files)
    verdict = verify(policy, files.source, out, evidence, summary, quarantine=quarantine)
    assert verdict.exit_code == 0, verdict.text()
    return Path(out).read_text().splitlines()


@pytest.mark.parametrize("has_schemas", [False, True])
def test_a_release_of_changes_passes_the_judge(tmp_path: Path, has_schemas: bool) -> None:  # noqa: FBT001
    messages: list[Any] = changes(60)
    for index, bad in enumerate(BAD):
        messages.insert(4 * index, bad)
    if has_schemas:
        messages = [{"schema": SCHEMA, "payload": one} for one in messages]
    policy = policy_of(tmp_path, unwrap="debezium", deletes="drop", tombstones="drop")
    rows = run(tmp_path, policy, messages)
    assert list(json.loads(rows[0])) == ["out", "born", "ward"]
    assert list(json.loads(rows[0])["out"]) == ["vitals", "icd"]
    summary = json.loads((tmp_path / "summary").read_text())
    # A change without a row, in BAD, is a delete.
    assert summary["dropped"] == {"deletes": 7, "tombstones": 0}
    assert summary["quarantined"] == {"invalid": 5, "too_large": 1}
    assert summary["records_in"] == 60 == summary["released"] + 6
    assert len(rows) == 54
    references = [json.loads(line) for line in (tmp_path / "quarantine").read_text().splitlines()]
    assert [one["offset"] for one in references] == [4, 8, 12, 16, 20, 24]


@pytest.mark.parametrize("kind", ["connect", "cloudevents"])
def test_a_release_of_other_envelopes_passes_the_judge(tmp_path: Path, kind: str) -> None:
    def wrapped(number: int) -> dict[str, Any]:
        if kind == "connect":
            return {"schema": SCHEMA, "payload": visit(number)}
        return {"specversion": "1.0", "id": str(number), "source": "/s", "type": "t", "data": visit(number)}

    run(tmp_path, policy_of(tmp_path, unwrap=kind), list(map(wrapped, range(40))))
    assert "dropped" not in json.loads((tmp_path / "summary").read_text())


def test_a_table_of_changes_passes_the_judge(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, streams=False, unwrap="debezium", deletes="drop")
    rows = run(tmp_path, policy, changes(60), is_table=True)
    assert len(rows) == 54
    assert json.loads((tmp_path / "summary").read_text())["dropped"] == {"deletes": 6, "tombstones": 0}


def test_files_without_objects_are_refused(tmp_path: Path) -> None:
    policy = policy_of(tmp_path)
    source = tmp_path / "in.csv"
    source.write_text("who,weight,born,icd,ward\n")
    files = Files(str(source), str(tmp_path / "out.csv"), None, None)
    with pytest.raises(
        InputError, match=r"attributes\.who is read from the field patient\.id of messages, which no CSV"
    ):
        run_pipe(policy, files)
    assert not (tmp_path / "out.csv").exists()
