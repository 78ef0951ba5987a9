"""`shoal pipe` and files that are not what they should be: all or nothing, told by name, the same for the judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shoal.audit import Verdict, verify
from shoal.errors import InputError
from shoal.pipe import Files, run_pipe
from shoal.policy import Policy

pytestmark = pytest.mark.unit

ATTRIBUTES: dict[str, Any] = {
    "who": {"role": "identifier", "subject": True},
    "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True},
    "note": {"role": "confidential", "type": "string"},
}


def policy_of(folder: Path, **more: Any) -> Policy:
    path = folder / "policy.yaml"
    path.write_text(json.dumps({"attributes": ATTRIBUTES, "privacy": {"k": 2}, "stream": {"delta": 4}} | more))
    return Policy.load(path)


def run(folder: Path, policy: Policy, text: bytes) -> tuple[str, list[tuple[int, str]], Verdict]:
    """Release a CSV file; return the release, what was quarantined, and what the judge says."""
    names = [folder / name for name in ("in.csv", "out.csv", "summary", "evidence", "quarantine")]
    source, out, summary, evidence, quarantine = names
    source.write_bytes(text)
    run_pipe(policy, Files(str(source), str(out), None, None, str(summary), str(evidence), str(quarantine)))
    told = [json.loads(line) for line in quarantine.read_text().splitlines()]
    verdict = verify(policy, source, out, evidence, summary, quarantine=quarantine, complete=True)
    return out.read_text(), [(one["offset"], one["reason"]) for one in told], verdict


def test_utf_16_without_its_mark_is_told_with_file_and_remedy(tmp_path: Path) -> None:
    policy, source, out = policy_of(tmp_path, csv={"encoding": "utf-16"}), tmp_path / "in.csv", tmp_path / "out.csv"
    text = "who,age,note\n" + "".join(f"p{i},40,x\n" for i in range(4))
    source.write_bytes(text.encode("utf-16-le"))
    words = r"in\.csv, line 1: no byte order mark, which utf-16 needs; give csv\.encoding .*utf-16-le or utf-16-be"
    with pytest.raises(InputError, match=words):
        run_pipe(policy, Files(str(source), str(out)))
    out.write_text("")
    with pytest.raises(InputError, match=words):
        verify(policy, source, out)
    source.write_bytes(text.encode("utf-16"))
    out.write_bytes("age,note\n".encode("utf-16-le"))
    with pytest.raises(InputError, match=words.replace("in", "out", 1)):
        verify(policy, source, out)
