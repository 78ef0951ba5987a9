"""Evidence and summaries name the policy, and those that were written before they did are still read.

Progress of an earlier version is read, too, except what that version learned.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from shoal.audit import verify
from shoal.cli import main
from shoal.errors import InputError
from shoal.kafka.offsets import OffsetState
from shoal.kafka.task import restore_pipeline
from shoal.observability import Metrics
from shoal.policy import Policy

pytestmark = pytest.mark.unit

STREAM = """
attributes:
  who: {role: identifier, subject: true}
  age: {role: quasi_identifier, bounds: [0, 110], integer: true}
  note: {role: confidential, type: string}
privacy: {k: 2}
stream: {delta: 4}
"""
TABLE = STREAM.replace("stream: {delta: 4}\n", "")
SOURCE = "who,age,note\na,30,x\nb,31,y\nc,50,z\nd,52,x\n"

# Written by the version before the field `policy`, of STREAM and SOURCE.
OLD_EVIDENCE = '{"partition":0,"cluster":0,"offsets":[0,1]}\n{"partition":0,"cluster":1,"offsets":[2,3]}\n'
OLD_RELEASE = "age,note\n30,x\n30,y\n51,x\n51,z\n"
OLD_SUMMARY = (
    '{"records_in": 4, "released": 4, "suppressed": {}, "quarantined": {}, "clipped": 0, "held": 0, "clusters": 2, '
    '"cluster_size": {"min": 2, "mean": 2.0, "max": 2}, "subjects": {"min": 2}, "share": {"max": 0.5}, '
    '"mse": 6.198347107438015e-05, "mae": 0.006818181818181818, "sse": 0.028385570668243643, "sst": 4.0, '
    '"information_loss": 0.7096392667060911, "displacement": {"mean": 0.0, "max": 0}, '
    '"excess_span": {"mean": 0.0, "max": 0}, "delay": {"mean": 1.5, "max": 3}, '
    '"elapsed_s": 0.9960459510002693, "records_per_s": 4.015878982272896}\n'
)
# Learned by the first version that learned: the epoch, 70 clusters, and the last mean, mean distance and width of age.
OLD_ADAPTIVE_STATE = b"\1" + struct.pack(">qqddd", 2, 70, 31.0, 8.0, 24.0)


def run(folder: Path, command: str, policy: str) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
    """Run `shoal pipe` or `batch`; return evidence, summary and the fingerprint that `shoal_policy_info` shows."""
    (folder / "policy.yaml").write_text(policy)
    (folder / "in.csv").write_text(SOURCE)
    paths = {name: str(folder / name) for name in ("policy.yaml", "in.csv", "out.csv", "evidence", "summary")}
    beside = ["--evidence", paths["evidence"], "--summary", paths["summary"]]
    assert main([command, paths["policy.yaml"], "-i", paths["in.csv"], "-o", paths["out.csv"], *beside]) == 0
    lines = [json.loads(line) for line in (folder / "evidence").read_text().splitlines()]
    metrics = Metrics()
    metrics.policy.labels(Policy.load(paths["policy.yaml"]).fingerprint).set(1)
    (sample,) = next(family for family in metrics.policy.collect()).samples
    return lines, json.loads((folder / "summary").read_text()), sample.labels["fingerprint"]


@pytest.mark.parametrize(("command", "policy"), [("pipe", STREAM), ("batch", STREAM), ("batch", TABLE)])
def test_evidence_and_summary_name_the_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, policy: str
) -> None:
    evidence, summary, fingerprint = run(tmp_path, command, policy)
    assert [list(line) for line in evidence] == [["partition", "cluster", "offsets", "policy"]] * 2
    assert list(summary)[-1] == "policy"
    named = {summary["policy"], *(line["policy"] for line in evidence)}
    capsys.readouterr()
    assert main(["check", str(tmp_path / "policy.yaml")]) == 0
    assert named == {fingerprint} == {json.loads(capsys.readouterr().out)["fingerprint"]}


def test_evidence_and_summary_without_a_policy_are_judged_by_the_given_one(tmp_path: Path) -> None:
    contents = {"policy.yaml": STREAM, "in.csv": SOURCE, "out.csv": OLD_RELEASE, "evidence": OLD_EVIDENCE}
    contents["summary"] = OLD_SUMMARY
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    policy, *files = (tmp_path / name for name in contents)
    found = verify(Policy.load(policy), *files)
    assert found.exit_code == 0, found.text()
    files[1].write_text(OLD_RELEASE.replace("51,x", "50,x"))
    assert verify(Policy.load(policy), *files).exit_code == 1


def test_what_an_earlier_version_learned_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(STREAM.replace("bounds: [0, 110], ", ""))
    with pytest.raises(InputError) as caught:
        restore_pipeline(Policy.load(tmp_path / "policy.yaml"), OffsetState(7, 12, adaptive_state=OLD_ADAPTIVE_STATE))
    assert str(caught.value) == (
        "the committed adaptive state was written by another version; run shoal run --drain with that version first"
    )
