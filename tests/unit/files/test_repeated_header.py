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
