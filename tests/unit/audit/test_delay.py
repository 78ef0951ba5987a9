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
from shoal.policy import Policy
from support.judged_runs import judged, released, write_lines
from support.making import SUBJECT, policy_of, quasi

pytestmark = pytest.mark.unit

RULES = ["nearest", "greedy", "awo", "block"]


def settings(delta: int = 20, rule: str = "nearest", release: str = "cluster", **more: Any) -> Policy:
    attributes = {"who": SUBJECT, "x": quasi(0, 1000, integer=True), "n": {"role": "confidential"}}
    stream = {"delta": delta, "rule": rule, "release": release}
    return policy_of(attributes, privacy={"k": 4} | more, stream=stream)


@dataclass
class Release:
    """The files of one run, changed by a test before it verifies them."""

    folder: Path
    lines: list[str]
    rows: list[str]
    evidence: list[dict[str, Any]]

    def verify(self, policy: Policy, **options: Any) -> Verdict:
        contents: dict[str, list[Any]] = {"in": self.lines, "out": self.rows, "evidence": self.evidence}
        paths = [write_lines(self.folder / f"{name}.jsonl", lines) for name, lines in contents.items()]
        return verify(policy, *paths, **options)


def run(folder: Path, policy: Policy, count: int = 200, *, every: int = 1) -> Release:
    """Release random records; of ``every`` lines one is a record, and the others do not fit the policy."""
    chance = random.Random(5)
    records = [{"who": number, "x": chance.randint(0, 1000), "n": number} for number in range(count)]
    lines = [line for record in records for line in [json.dumps(record), *["{}"] * (every - 1)]]
    paths = released(folder, policy, "".join(f"{line}\n" for line in lines))
    rows, evidence = (paths[name].read_text().splitlines() for name in ("released", "evidence"))
    # Tests also judge by other policies.
    named = [{name: line[name] for name in ("partition", "cluster", "offsets")} for line in map(json.loads, evidence)]
    return Release(folder, lines, rows, named)


@pytest.mark.parametrize("release", ["cluster", "ordered"])
@pytest.mark.parametrize("rule", RULES)
def test_a_delay_of_delta_holds_and_one_more_is_broken(tmp_path: Path, rule: str, release: str) -> None:
    made = run(tmp_path, settings(20, rule, release))
    verdict = made.verify(settings(20, rule, release))
    assert verdict.exit_code == 0, verdict.text()
    assert verdict["delay"].worst == 20
    assert "delay" in broken(made.verify(settings(19, rule, release)))
    assert "delay" in broken(made.verify(settings(19, rule, release), partial=True))


def test_delays_are_counted_in_admitted_records_and_not_in_offsets(tmp_path: Path) -> None:
    made = run(tmp_path, settings(20), every=3)
    assert len(made.lines) == 600
    verdict = made.verify(settings(20))
    assert verdict.exit_code == 0, verdict.text()
    assert verdict["delay"].worst == 20


def test_records_above_the_quota_are_not_counted(tmp_path: Path) -> None:
    policy = settings(20, per_subject={"max": 1, "window": 1000})
    made = run(tmp_path, policy, 100)
    doubled = "".join(f"{line}\n" * 2 for line in made.lines)
    verdict = judged(policy, released(tmp_path, policy, doubled), "evidence")
    assert verdict.exit_code == 0, verdict.text()
    assert verdict["delay"].worst == 20
    assert verdict.counts["rows"] == 100


def composed(folder: Path, members: list[list[int]]) -> Release:
    """Release records of 200 subjects in the given clusters, whatever their distance is."""
    chance = random.Random(6)
    records = [{"who": number, "x": chance.randint(0, 1000), "n": 10_000 + number} for number in range(200)]
    rows: dict[int, str] = {}
    for cluster in members:
        mean = round(sum(records[index]["x"] for index in cluster) / len(cluster))
        rows |= {index: f'{{"x":{mean},"n":{records[index]["n"]}}}' for index in cluster}
    order = [index for cluster in members for index in cluster]
    evidence = [{"partition": 0, "cluster": number, "offsets": cluster} for number, cluster in enumerate(members)]
    return Release(folder, [json.dumps(record) for record in records], [rows[index] for index in order], evidence)


def test_members_160_positions_apart_are_broken(tmp_path: Path) -> None:
    made = composed(tmp_path, [list(range(start, 200, 40)) for start in range(40)])
    verdict = made.verify(settings(20))
    assert "delay" in broken(verdict)
    assert (verdict["delay"].worst or 0) >= 160
    assert made.verify(settings(1000), table=False).exit_code == 0


def test_the_first_line_counts_suppressed_records(tmp_path: Path) -> None:
    # With members up to 20 apart, the second record of each cluster of 20 could not be released.
    members = [[start, *range(start + 2, start + 21)] for start in range(0, 189, 21)]
    members.append(list(range(189, 200)))
    verdict = composed(tmp_path, members).verify(settings(20))
    assert verdict.exit_code == 0, verdict.text()
    assert verdict.counts["suppressed"] == 9
    assert verdict.text().startswith(
        "holds: 200 records, 200 usable, 0 unusable, 191 rows, 10 clusters, 9 suppressed, "
    )


def test_a_last_record_without_line_end_is_claimed_if_it_is_missing(tmp_path: Path) -> None:
    made = composed(tmp_path, [list(range(start, start + 5)) for start in range(0, 195, 5)] + [[195, 196, 197, 198]])
    verdict = made.verify(settings(20))
    for name, ending, suppressed, claimed in (("ended", "\n", 1, 0), ("unended", "", 0, 1)):
        original = tmp_path / f"{name}.jsonl"
        original.write_text("\n".join(made.lines) + ending)
        verdict = verify(settings(20), original, tmp_path / "out.jsonl", tmp_path / "evidence.jsonl")
        assert verdict.exit_code == 0, verdict.text()
        assert (verdict.counts["suppressed"], verdict.counts["claimed"]) == (suppressed, claimed)
    assert ", 0 suppressed, 1 claimed, 0 held" in verdict.text()
    assert "claimed: 1 record at the end of the original, without line end" in verdict.text()
