"""The delay of a stream: releases of every rule hold at their own delta and are broken at one less."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from oracle.naive_release import broken
from shoal.audit import Verdict, verify
from shoal.files import Files, run_pipe
from shoal.policy import Policy
from shoal.policy.schema import Document

pytestmark = pytest.mark.unit

RULES = ["nearest", "greedy", "awo", "block"]


def policy_of(delta: int = 20, rule: str = "nearest", release: str = "cluster", **more: Any) -> Policy:
    document = {
        "attributes": {
            "who": {"role": "identifier", "subject": True},
            "x": {"role": "quasi_identifier", "bounds": [0, 1000], "integer": True},
            "n": {"role": "confidential"},
        },
        "privacy": {"k": 4} | more,
        "stream": {"delta": delta, "rule": rule, "release": release},
    }
    return Policy.from_document(Document.model_validate(document))


@dataclass
class Release:
    """The files of one run, changed by a test before it verifies them."""

    folder: Path
    lines: list[str]
    rows: list[str]
    evidence: list[dict[str, Any]]

    def verify(self, policy: Policy, **options: Any) -> Verdict:
        texts = {"in": self.lines, "out": self.rows, "evidence": list(map(json.dumps, self.evidence))}
        for name, found in texts.items():
            (self.folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in found))
        return verify(policy, *(self.folder / f"{name}.jsonl" for name in texts), **options)


def run(folder: Path, policy: Policy, count: int = 200, *, every: int = 1) -> Release:
    """Release random records; of ``every`` lines one is a record, and the others do not fit the policy."""
    chance = random.Random(5)
    records = [{"who": number, "x": chance.randint(0, 1000), "n": number} for number in range(count)]
    lines = [line for record in records for line in [json.dumps(record), *["{}"] * (every - 1)]]
    (folder / "in.jsonl").write_text("".join(f"{line}\n" for line in lines))
    names = {name: str(folder / f"{name}.jsonl") for name in ("in", "out", "evidence")}
    run_pipe(policy, Files(names["in"], names["out"], evidence=names["evidence"]))
    rows, evidence = (Path(names[name]).read_text().splitlines() for name in ("out", "evidence"))
    # Tests also judge by other policies.
    named = [{name: line[name] for name in ("partition", "cluster", "offsets")} for line in map(json.loads, evidence)]
    return Release(folder, lines, rows, named)


@pytest.mark.parametrize("release", ["cluster", "ordered"])
@pytest.mark.parametrize("rule", RULES)
def test_a_delay_of_delta_holds_and_one_more_is_broken(tmp_path: Path, rule: str, release: str) -> None:
    made = run(tmp_path, policy_of(20, rule, release))
    verdict = made.verify(policy_of(20, rule, release))
    assert verdict.exit_code == 0, verdict.text()
    assert verdict["delay"].worst == 20
    assert "delay" in broken(made.verify(policy_of(19, rule, release)))
    assert "delay" in broken(made.verify(policy_of(19, rule, release), partial=True))


def test_delays_are_counted_in_admitted_records_and_not_in_offsets(tmp_path: Path) -> None:
    made = run(tmp_path, policy_of(20), every=3)
    assert len(made.lines) == 600
    verdict = made.verify(policy_of(20))
    assert verdict.exit_code == 0, verdict.text()
    assert verdict["delay"].worst == 20


def test_records_above_the_quota_are_not_counted(tmp_path: Path) -> None:
    policy = policy_of(20, per_subject={"max": 1, "window": 1000})
    made = run(tmp_path, policy, 100)
    doubled = [line for line in made.lines for _ in range(2)]
    (tmp_path / "in.jsonl").write_text("".join(f"{line}\n" for line in doubled))
    run_pipe(
        policy,
        Files(str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl"), evidence=str(tmp_path / "evidence.jsonl")),
    )
    verdict = verify(policy, tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "evidence.jsonl")
    assert verdict.exit_code == 0, verdict.text()
    assert verdict["delay"].worst == 20
    assert verdict.counts["rows"] == 100


def test_a_late_cluster_is_noticed_though_its_members_are_near_each_other(tmp_path: Path) -> None:
    made = run(tmp_path, policy_of(20))
    first = made.evidence.pop(0)
    rows = [made.rows.pop(0) for _ in first["offsets"]]
    made.evidence.append(first)
    made.rows += rows
    verdict = made.verify(policy_of(20))
    assert broken(verdict) == {"delay", "oldest_first"}
    assert verdict["delay"].places == (first["cluster"],)


def composed(folder: Path, members: list[list[int]], release: str = "cluster") -> Release:
    """Release records of 200 subjects in the given clusters, whatever their distance is."""
    chance = random.Random(6)
    records = [{"who": number, "x": chance.randint(0, 1000), "n": 10_000 + number} for number in range(200)]
    rows: dict[int, str] = {}
    for cluster in members:
        mean = round(sum(records[index]["x"] for index in cluster) / len(cluster))
        rows |= {index: f'{{"x":{mean},"n":{records[index]["n"]}}}' for index in cluster}
    order = [index for cluster in members for index in cluster]
    order = sorted(order) if release == "ordered" else order
    evidence = [{"partition": 0, "cluster": number, "offsets": cluster} for number, cluster in enumerate(members)]
    return Release(folder, [json.dumps(record) for record in records], [rows[index] for index in order], evidence)


def test_members_160_positions_apart_are_broken(tmp_path: Path) -> None:
    made = composed(tmp_path, [list(range(start, 200, 40)) for start in range(40)])
    verdict = made.verify(policy_of(20))
    assert "delay" in broken(verdict)
    assert (verdict["delay"].worst or 0) >= 160
    assert made.verify(policy_of(1000), table=False).exit_code == 0


def test_the_first_line_counts_suppressed_records(tmp_path: Path) -> None:
    # With members up to 20 apart, the second record of each cluster of 20 could not be released.
    members = [[start, *range(start + 2, start + 21)] for start in range(0, 189, 21)]
    members.append(list(range(189, 200)))
    verdict = composed(tmp_path, members).verify(policy_of(20))
    assert verdict.exit_code == 0, verdict.text()
    assert verdict.counts["suppressed"] == 9
    assert verdict.text().startswith(
        "holds: 200 records, 200 usable, 0 unusable, 191 rows, 10 clusters, 9 suppressed, "
    )


def test_a_last_record_without_line_end_is_claimed_if_it_is_missing(tmp_path: Path) -> None:
    made = composed(tmp_path, [list(range(start, start + 5)) for start in range(0, 195, 5)] + [[195, 196, 197, 198]])
    verdict = made.verify(policy_of(20))
    for name, ending, suppressed, claimed in (("ended", "\n", 1, 0), ("unended", "", 0, 1)):
        original = tmp_path / f"{name}.jsonl"
        original.write_text("\n".join(made.lines) + ending)
        verdict = verify(policy_of(20), original, tmp_path / "out.jsonl", tmp_path / "evidence.jsonl")
        assert verdict.exit_code == 0, verdict.text()
        assert (verdict.counts["suppressed"], verdict.counts["claimed"]) == (suppressed, claimed)
    assert ", 0 suppressed, 1 claimed, 0 held" in verdict.text()
    assert "claimed: 1 record at the end of the original, without line end" in verdict.text()


def test_one_row_each_of_40_clusters_is_no_ordered_release(tmp_path: Path) -> None:
    made = composed(tmp_path, [list(range(start, 200, 40)) for start in range(40)], "ordered")
    made.rows = made.rows[:40]
    for partial in (False, True):
        verdict = made.verify(policy_of(20, release="ordered"), partial=partial)
        assert "delay" in broken(verdict)


def test_members_of_another_partition_are_broken(tmp_path: Path) -> None:
    made = composed(tmp_path, [[0, 1, 2, 3], [4, 5, 6, 7]])
    lines = [
        json.dumps({"partition": number % 2, "offset": number, "value": line}) for number, line in enumerate(made.lines)
    ]
    made.lines, made.rows = lines[:8], [json.dumps({"partition": 0, "value": row}) for row in made.rows]
    assert {"existing", "subjects"} <= broken(made.verify(policy_of(20)))
