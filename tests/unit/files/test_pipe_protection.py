"""`shoal pipe` under l, t and a largest share of one value: every format and option keeps them."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shoal.audit import verify
from shoal.cli import main
from shoal.files import Files, run_pipe
from shoal.policy import Policy

pytestmark = pytest.mark.unit

SHARES = {"eye": 0.4, "ear": 0.3, "nose": 0.2, "": 0.1}
FIELDS = ("who", "age", "gain", "ward")


def policy_of(folder: Path, privacy: dict[str, Any], **more: Any) -> Policy:
    lines = [f"{ward},{share}" for ward, share in SHARES.items()]
    (folder / "wards.csv").write_text("\n".join(["value,share", *lines, ""]))
    ward = {"role": "confidential", "type": "string"} | ({"reference": "wards.csv"} if "t" in privacy else {})
    document = {
        "attributes": {
            "who": {"role": "identifier", "subject": True},
            "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True},
            "gain": {"role": "quasi_identifier", "bounds": [0, 1000], "resolution": 0.5},
            "ward": ward,
        },
        "privacy": {"k": 4, **privacy},
        "stream": {"delta": 50},
    }
    for name, section in more.items():
        document[name] = {**document.get(name, {}), **section}
    path = folder / "policy.yaml"
    path.write_text(json.dumps(document))
    return Policy.load(path)


def records(count: int = 400, people: int = 400) -> list[dict[str, Any]]:
    random = np.random.default_rng(8)
    return [
        {
            "who": str(random.integers(people)) if people < count else str(number),
            "age": int(random.integers(0, 100)),
            "gain": float(random.integers(1, 999)),
            "ward": str(random.choice(list(SHARES), p=[0.5, 0.3, 0.15, 0.05])),
        }
        for number in range(count)
    ]


def write(path: Path, data: list[dict[str, Any]]) -> None:
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(data)
    else:
        path.write_text("".join(f"{json.dumps(record)}\n" for record in data))


def piped(
    folder: Path, policy: Policy, data: list[dict[str, Any]], suffix: str = "jsonl"
) -> tuple[list[list[dict[str, Any]]], dict[str, Any]]:
    """Release records and let the judge verify them; return the records of each cluster, and the summary."""
    names = [folder / name for name in (f"in.{suffix}", "out.jsonl", "summary", "evidence", "quarantine")]
    source, out, summary, evidence, quarantine = names
    write(source, data)
    run_pipe(policy, Files(str(source), str(out), None, None, str(summary), str(evidence), str(quarantine)))
    verdict = verify(policy, source, out, evidence, summary, quarantine=quarantine)
    assert verdict.outcome == "holds", verdict.text()
    clusters = [json.loads(line)["offsets"] for line in evidence.read_text().splitlines()]
    published = Counter(json.loads(line)["ward"] for line in out.read_text().splitlines())
    assert published == Counter(data[offset]["ward"] for cluster in clusters for offset in cluster)
    return [[data[offset] for offset in cluster] for cluster in clusters], json.loads(summary.read_text())


PROTECTION = {"t": 0.35, "l": 2, "max_value_share": 0.6}


def test_the_values_of_every_format_are_protected_in_the_same_clusters(tmp_path: Path) -> None:
    policy, found = policy_of(tmp_path, PROTECTION), []
    for suffix in ("jsonl", "csv"):
        clusters, _ = piped(tmp_path, policy, records(), suffix)
        found.append(clusters)
        reasons = {json.loads(line)["reason"] for line in (tmp_path / "quarantine").read_text().splitlines()}
        assert reasons <= {"suppressed"}, "a reference says nothing of values"
    assert found[0] == found[1]
    assert len(found[0]) >= 8


@pytest.mark.parametrize(
    ("privacy", "more"),
    [
        ({}, {"stream": {"release": "ordered", "reveal_order": True}}),
        ({}, {"attributes": {"gain": {"role": "quasi_identifier", "resolution": 0.5}}}),
        ({"per_subject": {"max": 1, "window": 100}}, {}),
        ({"min_population": 10}, {"stream": {"rule": "nearest"}}),
        ({}, {"steering": {"position": {"target_span": 20}}}),
        ({"max_share": 0.25}, {"stream": {"rule": "block"}}),
    ],
)
def test_every_option_keeps_them(privacy: dict[str, Any], more: dict[str, Any], tmp_path: Path) -> None:
    policy = policy_of(tmp_path, PROTECTION | privacy, **more)
    clusters, summary = piped(tmp_path, policy, records(people=150))
    assert len(clusters) >= 8
    assert summary["emd"]["ward"]["max"] <= 0.35
    assert summary["l"]["min"] >= 2
    assert summary["value_share"]["max"] <= 0.6


def test_a_stream_of_one_value_is_suppressed_for_one_reason(tmp_path: Path) -> None:
    data = records(60)
    for record in data:
        record["ward"] = "eye"
    clusters, summary = piped(tmp_path, policy_of(tmp_path, {"l": 2}), data)
    assert clusters == []
    assert summary["suppressed"] == {"suppressed": 60}
    assert summary["l"] == {"min": None}
    assert summary["value_share"] == {"max": None}


SCALES: dict[str, dict[str, Any]] = {
    "ordered": {"role": "confidential"},
    "ordinal": {"role": "confidential", "scale": "ordinal", "order": [10, 20, 30, 40]},
    "hierarchical": {"role": "confidential", "scale": "nominal", "taxonomy": "tree.csv"},
}


@pytest.mark.parametrize(("scale", "suffix"), [("ordered", "csv"), ("ordinal", "jsonl"), ("hierarchical", "csv")])
def test_the_judge_agrees_with_every_distance(scale: str, suffix: str, tmp_path: Path) -> None:
    (tmp_path / "pays.csv").write_text("value,share\n,0.1\n10,0.4\n20,0.3\n30,0.2\n")
    (tmp_path / "tree.csv").write_text("pay,class,all\n10,low,any\n20,low,any\n30,high,any\n40,high,any\n")
    pay = SCALES[scale] | {"reference": "pays.csv", "protect": True}
    policy = policy_of(
        tmp_path, {"t": 0.2, "l": {"entropy": 1.5}}, attributes={"gain": pay, "ward": {"role": "confidential"}}
    )
    random = np.random.default_rng(4)
    spellings = {10: ("10", "1e1", "10.0"), 20: ("20", "2E1", "20"), 30: ("30", "30", "30.00"), 40: ("40", "40", "40")}
    data = records(300)
    for number, record in enumerate(data):
        value = int(random.choice([10, 20, 30, 40, 0], p=[0.4, 0.25, 0.2, 0.05, 0.1]))
        record["gain"] = spellings[value][number % 3] if value else ""
    clusters, summary = piped(tmp_path, policy, data, suffix)
    assert len(clusters) >= 8
    assert 0 < summary["emd"]["gain"]["max"] <= 0.2 + 1e-9
    assert summary["l"]["min"] >= 2


def test_the_judge_recomputes_what_the_summary_says_of_dependence(tmp_path: Path) -> None:
    gain = {"role": "confidential", "type": "number", "bounds": [0, 1000]}
    steering = {"dependence": 0.4}
    policy = policy_of(tmp_path, {"l": 2}, attributes={"gain": gain}, steering=steering, stream={"rule": "awo"})
    clusters, summary = piped(tmp_path, policy, records(200))
    assert len(clusters) > 10
    assert 0.1 < summary["d_x"] < 0.5
    assert 0.1 < summary["d_y"] < 0.5
    changed = tmp_path / "changed"
    changed.write_text(json.dumps(summary | {"d_y": summary["d_y"] / 2}))
    source, out, evidence = (tmp_path / name for name in ("in.jsonl", "out.jsonl", "evidence"))
    assert verify(policy, source, out, evidence, changed, quarantine=tmp_path / "quarantine").outcome == "broken"


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ({}, "or lower privacy.k"),
        ({"l": 2}, "or lower privacy.k, or lower privacy.l, or raise privacy.max_value_share"),
        ({"t": 0.01}, "or lower privacy.k, or raise privacy.t"),
        ({"l": {"entropy": 2}, "max_value_share": 1}, "or lower privacy.k, or lower privacy.l"),
    ],
)
def test_an_empty_release_names_the_limits_of_the_policy(
    privacy: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy_of(tmp_path, privacy)
    write(tmp_path / "in.jsonl", [record | {"ward": "eye", "who": "one"} for record in records(20)])
    names = [str(tmp_path / name) for name in ("policy.yaml", "in.jsonl", "out.jsonl")]
    assert main(["pipe", names[0], "-i", names[1], "-o", names[2]]) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith(words)


def test_a_release_without_many_frequent_values_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy_of(tmp_path, {"l": 2})
    write(tmp_path / "in.jsonl", [row | {"ward": "eye" if n % 8 else "ear"} for n, row in enumerate(records(160))])
    names = [str(tmp_path / name) for name in ("policy.yaml", "in.jsonl", "out.jsonl")]
    assert main(["pipe", names[0], "-i", names[1], "-o", names[2]]) == 0
    error = capsys.readouterr().err
    assert "the release is not representative of the input" in error
    assert "privacy.l, privacy.max_value_share" in error
