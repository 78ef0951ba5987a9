"""An original without records: `shoal pipe` accepts it, and its release is judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from oracle.naive_release import broken
from shoal.audit import Verdict, verify
from shoal.errors import InputError
from shoal.files import Files, run_pipe
from shoal.policy import Policy
from shoal.policy.schema import Document

pytestmark = pytest.mark.unit

SIDE_FILES = ("evidence", "quarantine", "summary")


def policy_of(release: str | None) -> Policy:
    document = {
        "attributes": {
            "person": {"role": "identifier", "subject": True},
            "x": {"role": "quasi_identifier", "bounds": [0, 1000], "integer": True},
        },
        "privacy": {"k": 4},
    }
    if release is not None:
        document["stream"] = {"delta": 20, "release": release}
    return Policy.from_document(Document.model_validate(document))


def released(folder: Path, policy: Policy, suffix: str, text: str) -> dict[str, Path]:
    paths = {name: folder / f"{name}.{suffix}" for name in ("original", "released")}
    paths |= {name: folder / f"{name}.jsonl" for name in SIDE_FILES}
    paths["original"].write_text(text)
    evidence, quarantine, summary = (str(paths[name]) for name in SIDE_FILES)
    files = Files(
        str(paths["original"]), str(paths["released"]), evidence=evidence, quarantine=quarantine, summary=summary
    )
    run_pipe(policy, files)
    return paths


def judged(policy: Policy, paths: dict[str, Path], *given: str) -> Verdict:
    evidence, quarantine, summary = (paths[name] if name in given else None for name in SIDE_FILES)
    return verify(policy, paths["original"], paths["released"], evidence, summary, quarantine=quarantine)


@pytest.mark.parametrize("release", ["cluster", "ordered"])
@pytest.mark.parametrize(
    ("suffix", "text"), [("csv", "person,x\n"), ("csv", "person,x"), ("jsonl", ""), ("jsonl", "\n")]
)
def test_no_rows_of_no_records_hold(tmp_path: Path, release: str, suffix: str, text: str) -> None:
    policy = policy_of(release)
    paths = released(tmp_path, policy, suffix, text)
    for given in ((), ("evidence",), SIDE_FILES):
        verdict = judged(policy, paths, *given)
        assert verdict.exit_code == 0, verdict.text()
        assert verdict.text().startswith("holds: 0 records, 0 usable, 0 unusable, 0 rows, 0 clusters, ")


def test_files_that_name_records_which_do_not_exist_are_broken(tmp_path: Path) -> None:
    policy = policy_of("cluster")
    paths = released(tmp_path, policy, "jsonl", "")
    paths["evidence"].write_text(json.dumps({"partition": 0, "cluster": 0, "offsets": [0, 1, 2, 3]}) + "\n")
    reference = {"topic": "original.jsonl", "partition": 0, "offset": 0, "reason": "suppressed"}
    paths["quarantine"].write_text(json.dumps(reference) + "\n")
    summary = json.loads(paths["summary"].read_text()) | {"records_in": 1, "suppressed": {"suppressed": 1}}
    paths["summary"].write_text(json.dumps(summary))
    for name, check in (("evidence", "existing"), ("quarantine", "references"), ("summary", "accounts")):
        verdict = judged(policy, paths, name)
        assert check in broken(verdict), verdict.text()


@pytest.mark.parametrize("release", ["cluster", None])
def test_rows_of_no_records_and_tables_without_records_are_refused(tmp_path: Path, release: str | None) -> None:
    rows = "" if release is None else '{"x":5}\n'
    for name, text in (("original", ""), ("released", rows)):
        (tmp_path / f"{name}.jsonl").write_text(text)
    with pytest.raises(InputError, match="no records, so there is nothing to compare with; give the original"):
        verify(policy_of(release), tmp_path / "original.jsonl", tmp_path / "released.jsonl")
