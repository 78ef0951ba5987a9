"""CSV files whose header occurs again among the records: no command releases it, and the judge counts no person."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shoal.audit import verify
from shoal.policy import Policy
from support.commands import run_command

pytestmark = pytest.mark.unit

POLICY: dict[str, Any] = {
    "attributes": {
        "who": {"role": "identifier", "subject": True, "type": "string"},
        "ward": {"role": "quasi_identifier", "scale": "nominal"},
        "ill": {"role": "confidential", "type": "string"},
    },
    "privacy": {"k": 3},
    "stream": {"delta": 6},
}
HEADER = "who,ward,ill\n"
PARTS = ["".join(f"p{3 * part + i},{'ns'[part % 2]},i{part}\n" for i in range(3)) for part in range(4)]
APPENDED = HEADER + HEADER.join(PARTS)
"""Twelve records; the header occurs again on lines 5, 9 and 13, as the records 3, 7 and 11."""
ROWS = ["n,i0"] * 3 + ["n,i2"] * 3 + ["s,i1"] * 3 + ["s,i3"] * 3
BESIDE = ("--evidence", "e.jsonl", "--summary", "s.json", "--quarantine", "q.jsonl")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policy.yaml").write_text(json.dumps(POLICY))
    (tmp_path / "in.csv").write_text(APPENDED)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        "pipe policy.yaml -i in.csv",
        "pipe policy.yaml --format csv",
        "pipe policy.yaml --format csv --follow",
        "pipe policy.yaml -i in.jsonl --output-format csv",
        "batch policy.yaml -i in.csv",
    ],
)
def test_a_repeated_header_is_quarantined_and_the_judge_agrees(folder: Path, words: str) -> None:
    header, *rows = (line.split(",") for line in APPENDED.splitlines())
    lines = [json.dumps(dict(zip(header, row, strict=True))) for row in rows]
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n")
    done = run_command(*words.split(), "-o", "out.csv", *BESIDE, stdin=APPENDED.encode(), folder=folder)
    assert done.returncode == 0, done.stderr
    kind = "each field has its own name as its value" if "jsonl" in words else "equals the header"
    assert f"15 in, 12 out, 0 suppressed, 3 refused (3 of 15 invalid: {kind})" in done.stderr.decode()
    assert sorted((folder / "out.csv").read_text().splitlines()[1:]) == ROWS
    references = map(json.loads, (folder / "q.jsonl").read_text().splitlines())
    assert [(one["offset"], one["reason"]) for one in references] == [(3, "invalid"), (7, "invalid"), (11, "invalid")]
    names = ("in.jsonl" if "jsonl" in words else "in.csv", "out.csv", "e.jsonl", "s.json", "q.jsonl")
    source, out, evidence, summary, quarantine = (folder / name for name in names)
    policy = Policy.load(folder / "policy.yaml")
    table = True if "batch" in words else None
    verdict = verify(policy, source, out, evidence, summary, quarantine=quarantine, table=table)
    assert verdict.exit_code == 0, verdict.text()
    assert (verdict.counts["records"], verdict.counts["unusable"]) == (15, 3)


def test_batch_still_refuses_a_table_with_another_fault_beside_a_repeated_header(folder: Path) -> None:
    (folder / "in.csv").write_text(APPENDED + "p9,n\n")
    done = run_command("batch", "policy.yaml", "-i", "in.csv", "-o", "out.csv", *BESIDE, folder=folder)
    assert done.returncode == 2
    assert "in.csv, line 17: 2 cells, but the header has 3" in done.stderr.decode()
    assert not (folder / "out.csv").exists()


@pytest.mark.parametrize(
    ("beside", "broken"),
    [
        (["--evidence", "e.jsonl"], {"existing", "subjects", "nothing_else"}),
        ([], {"traced", "subjects", "nothing_else"}),
    ],
    ids=["with evidence", "without"],
)
@pytest.mark.parametrize("command", ["pipe", "batch"])
def test_the_judge_refuses_a_release_in_which_a_repeated_header_is_a_person(
    folder: Path, command: str, beside: list[str], broken: set[str]
) -> None:
    # The release of three persons. The second one has the values of the header, and a subject, which is not published.
    (folder / "persons.csv").write_text("who,ward,ill\np0,n,i0\np1,ward,ill\np2,n,i2\n")
    (folder / "in.csv").write_text("who,ward,ill\np0,n,i0\nwho,ward,ill\np2,n,i2\n")
    words = ["-i", "persons.csv", "-o", "out.csv", "--evidence", "e.jsonl"]
    assert run_command(command, "policy.yaml", *words, folder=folder).returncode == 0
    assert len((folder / "out.csv").read_text().splitlines()) == 4
    words = ["--released", "out.csv", *beside, "--json", "v.json", *(["--table"] if command == "batch" else [])]
    for original, code, names in (("persons.csv", 0, set()), ("in.csv", 1, broken)):
        done = run_command("verify", "policy.yaml", "--original", original, *words, folder=folder)
        checks = json.loads((folder / "v.json").read_text())["checks"]
        assert {check["name"] for check in checks if check["status"] == "broken"} == names
        assert done.returncode == code
