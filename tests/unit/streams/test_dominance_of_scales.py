"""The p % rule with quasi-identifiers of several scales: it protects the numeric ones, and the judge agrees."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shoal.audit import verify
from shoal.files import Files, run_pipe
from shoal.policy import Policy
from shoal.streams.dominance import dominance_of

pytestmark = pytest.mark.unit

SCALES: dict[str, dict[str, Any]] = {
    "ward": {"scale": "nominal"},
    "day": {"scale": "time", "bounds": ["2026-01-01", "2026-12-31"], "resolution": "day"},
    "gain": {"bounds": [-500, 500], "integer": True},
    "paid": {"bounds": [0, 10_000], "integer": True},
}
SHARE = 0.2
ORDERS = [("ward", "day", "gain", "paid"), ("gain", "ward", "paid", "day"), ("gain", "paid", "day", "ward")]


def policy_of(folder: Path, order: tuple[str, ...], dominance: float | None = 100 * SHARE) -> Policy:
    attributes: dict[str, Any] = {"who": {"role": "identifier", "subject": True}}
    attributes |= {name: {"role": "quasi_identifier"} | SCALES[name] for name in order}
    attributes["serial"] = {"role": "confidential", "type": "integer"}
    privacy = {"k": 3} | ({} if dominance is None else {"dominance": dominance})
    path = folder / "policy.yaml"
    path.write_text(json.dumps({"attributes": attributes, "privacy": privacy, "stream": {"delta": 12}}))
    return Policy.load(path)


def records() -> list[dict[str, Any]]:
    random = np.random.default_rng(5)
    return [
        {
            "who": f"p{i}",
            "ward": "north" if random.random() < 0.5 else "south",
            "day": f"2026-0{random.integers(1, 10)}-1{random.integers(0, 10)}",
            "gain": int(random.choice([-400, -1, 0, 1, 2, 450])),
            "paid": int(random.choice([1, 2, 30, 9000])),
            "serial": i,
        }
        for i in range(120)
    ]


def dominated(members: list[dict[str, Any]], name: str, point: float) -> bool:
    """Whether all contributions but the two largest are too small, with one record per person."""
    contributions = sorted(abs(one[name] - point) for one in members)
    return bool(sum(contributions[:-2]) < SHARE * contributions[-1])


POINTS = [("gain", -500), ("gain", 500), ("gain", 0), ("paid", 0), ("paid", 10_000)]


def released(folder: Path, policy: Policy) -> list[list[dict[str, Any]]]:
    """Release the records; return the members of each cluster, after the judge has agreed."""
    source, out, evidence, bad = (folder / name for name in ("in.jsonl", "out.jsonl", "evidence.jsonl", "bad.jsonl"))
    found = records()
    source.write_text("".join(json.dumps(one) + "\n" for one in found))
    run_pipe(policy, Files(str(source), str(out), evidence=str(evidence), quarantine=str(bad)))
    verdict = verify(policy, source, out, evidence, quarantine=bad, complete=True)
    assert verdict.outcome == "holds", [check for check in verdict.checks if check.status != "holds"]
    assert {check.name for check in verdict.checks} >= ({"dominance"} if policy.dominance else set())
    return [[found[i] for i in json.loads(line)["offsets"]] for line in evidence.read_text().splitlines()]


@pytest.mark.parametrize("order", ORDERS)
def test_no_numeric_contribution_dominates_wherever_other_scales_are_declared(
    order: tuple[str, ...], tmp_path: Path
) -> None:
    clusters = released(tmp_path, policy_of(tmp_path, order))
    assert sum(map(len, clusters)) >= 60
    assert [(name, point) for one in clusters for name, point in POINTS if dominated(one, name, point)] == []


def test_without_the_rule_contributions_dominate(tmp_path: Path) -> None:
    clusters = released(tmp_path, policy_of(tmp_path, ORDERS[0], None))
    assert {name for one in clusters for name, point in POINTS if dominated(one, name, point)} == {"gain", "paid"}


@pytest.mark.parametrize("order", list(permutations(SCALES))[::5])
def test_the_rule_has_reference_points_of_numeric_attributes_alone(order: tuple[str, ...], tmp_path: Path) -> None:
    rule = dominance_of(policy_of(tmp_path, order))
    assert rule is not None
    points = {"gain": [-500.0, 500.0, 0.0], "paid": [0.0, 10_000.0, 0.0]}
    assert rule.references.tolist() == [points[name] for name in order if name in points]
