"""`shoal batch` with l-diversity, value shares and t-closeness: clusters against plain definitions."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from shoal.arrays import Int32Vector
from shoal.cli import main
from shoal.policy import Policy
from shoal.tables.precompilation import precompile_table
from support.diversity_by_definition import entropy_of, is_recursive, value_share

pytestmark = pytest.mark.unit

DISEASES = ["flu", "cold", "ulcer", "colitis", None]
PATHS = {"flu": ["flu", "lung"], "cold": ["cold", "lung"], "ulcer": ["ulcer", "gut"], "colitis": ["colitis", "gut"]}
LEVELS = ["low", "middle", "high"]


def batch_command(folder: Path) -> list[str]:
    return ["batch", str(folder / "policy.json"), "-i", str(folder / "in.jsonl"), "-o", str(folder / "out.csv")]


def records(count: int = 150) -> list[dict[str, Any]]:
    draw = random.Random(3)
    rows: list[dict[str, Any]] = []
    for _ in range(count):
        age = draw.randrange(100)
        illness = DISEASES[min(int(age / 25 + draw.expovariate(1.5)), 4)]
        level = LEVELS[min(int(draw.expovariate(1.0)), 2)]
        rows.append(
            {"age": age, "illness": illness, "pay": draw.choice([1, 1.0, "1.0", 2, "3", " 4 "]), "level": level}
        )
    return rows


def clusters(
    folder: Path, privacy: dict[str, Any], rows: list[dict[str, Any]], attributes: dict[str, Any], *more: str
) -> tuple[list[list[dict[str, Any]]], dict[str, Any]]:
    """Release a table; return the input records of each cluster, and the summary."""
    document = {
        "attributes": {"age": {"role": "quasi_identifier", "scale": "numeric"}, **attributes},
        "privacy": {"k": 4, **privacy},
        "undeclared": "drop",
        "subject": "every_record",
    }
    policy, source = folder / "policy.json", folder / "in.jsonl"
    policy.write_text(json.dumps(document))
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out, evidence, summary = (folder / name for name in ("out.jsonl", "evidence", "summary"))
    files = ["-i", str(source), "-o", str(out), "--evidence", str(evidence), "--summary", str(summary)]
    assert main(["batch", str(policy), *files, *more]) == 0
    members = [json.loads(line) for line in evidence.read_text().splitlines()]
    lists = [next(value for value in line.values() if isinstance(value, list)) for line in members]
    return [[rows[offset] for offset in own] for own in lists], json.loads(summary.read_text())


ILLNESS: dict[str, Any] = {"illness": {"role": "confidential", "type": "string"}}


@pytest.mark.parametrize("algorithm", ["auto", "mdav"])
@pytest.mark.parametrize("l", [3, {"entropy": 2.5}, {"recursive": [3, 3]}])
def test_clusters_of_a_table_are_l_diverse(l: Any, algorithm: str, tmp_path: Path) -> None:  # noqa: E741
    found, summary = clusters(tmp_path, {"l": l}, records(), ILLNESS, "--algorithm", algorithm)
    columns = [[row["illness"] for row in cluster] for cluster in found]
    assert len(columns) > 10
    for column in columns:
        assert len(column) >= 4
        if l == 3:
            assert len(set(column)) >= 3
            assert value_share(column) <= 0.5  # the default together with distinct l
        elif "entropy" in l:
            assert entropy_of(column) >= math.log(2.5) - 1e-9
        else:
            assert is_recursive(column, 3, 3)
    assert summary["l"] == {"min": min(len(set(column)) for column in columns)}
    assert summary["value_share"] == {"max": pytest.approx(max(float(value_share(column)) for column in columns))}


def test_only_protected_attributes_count(tmp_path: Path) -> None:
    both = {"illness": {"role": "confidential", "protect": True}, "level": {"role": "confidential"}}
    found, _ = clusters(tmp_path, {"max_value_share": 0.4}, records(), both)
    assert max(value_share([row["illness"] for row in cluster]) for cluster in found) <= 0.4
    assert max(value_share([row["level"] for row in cluster]) for cluster in found) > 0.4


def test_distances_of_a_table_are_those_of_protected_attributes(tmp_path: Path) -> None:
    scale = {"role": "confidential", "type": "string", "scale": "ordinal", "order": LEVELS}
    marked = {"illness": {"role": "confidential", "type": "string", "protect": True}, "level": scale}
    _, summary = clusters(tmp_path, {"t": 0.4}, records(), marked)
    assert list(summary["emd_of"]) == ["illness"]
    assert summary["emd"] == summary["emd_of"]["illness"]
    names = ("policy.json", "out.jsonl", "in.jsonl", "evidence", "summary")
    policy, out, source, evidence, stated = (str(tmp_path / name) for name in names)
    files = ["--original", source, "--released", out, "--evidence", evidence, "--summary", stated]
    assert main(["verify", policy, *files]) == 0


@pytest.mark.parametrize(
    ("privacy", "found", "remedy"),
    [
        ({"l": 3}, "violates privacy.l (level) and privacy.max_value_share (level)", "lower privacy.l, raise"),
        ({"l": {"entropy": 2.5}}, "violates privacy.l (level), so", "lower privacy.l, or add"),
        ({"max_value_share": 0.6}, "violates privacy.max_value_share (level), so", "raise privacy.max_value_share"),
        ({"t": 0.1}, "violates privacy.t (illness), so", "raise privacy.t, or make the reference anew"),
    ],
)
def test_a_table_that_violates_the_policy_as_a_whole_names_the_settings(
    privacy: dict[str, Any], found: str, remedy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"age": n, "illness": "abc"[n % 3], "level": "high" if n % 3 else "low"} for n in range(30)]
    about: dict[str, Any] = {name: {"role": "confidential", "type": "string"} for name in ("illness", "level")}
    if "t" in privacy:
        (tmp_path / "r.csv").write_text("value,share\na,0.9\nb,0.05\nc,0.05\n")
        about["illness"]["reference"] = "r.csv"
    document = {"attributes": {"age": {"role": "quasi_identifier"}, **about}, "privacy": {"k": 4, **privacy}}
    policy, source, out = (tmp_path / name for name in ("policy.json", "in.jsonl", "out.jsonl"))
    policy.write_text(json.dumps(document | {"subject": "every_record"}))
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["batch", str(policy), "-i", str(source), "-o", str(out)]) == 1
    error = capsys.readouterr().err
    assert found in error
    assert remedy in error
    assert not out.exists()


def test_spellings_of_one_number_are_one_value(tmp_path: Path) -> None:
    pay = {"pay": {"role": "confidential"}}
    found, _ = clusters(tmp_path, {"l": 3}, records(), pay)
    for cluster in found:
        assert len({float(row["pay"]) for row in cluster}) >= 3


def plain_distance(kind: str, own: list[Any], whole: dict[Any, float]) -> float:
    """The distance of a list of values from shares of values, by its definition."""
    keys = list(whole)
    counts = Counter(own)
    gaps = [counts[key] / len(own) - whole[key] for key in keys]
    if kind == "ordered":
        return sum(abs(sum(gaps[: i + 1])) for i in range(len(gaps))) / (len(keys) - 1)
    if kind == "equal":
        return sum(map(abs, gaps)) / 2
    total = 0.0
    for level in (0, 1):
        nodes: Counter[str] = Counter()
        for key, gap in zip(keys, gaps, strict=True):
            nodes[PATHS[key][level] if key in PATHS else "missing"] += gap  # type: ignore[assignment]
        total += sum(map(abs, nodes.values())) / 2
    return total / 2


@pytest.mark.parametrize("kind", ["ordered", "equal", "hierarchical"])
@pytest.mark.parametrize("is_given", [False, True])
def test_clusters_of_a_table_are_t_close(kind: str, is_given: bool, tmp_path: Path) -> None:  # noqa: FBT001
    rows = records()
    name = "level" if kind == "ordered" else "illness"
    about: dict[str, Any] = {"role": "confidential", "type": "string", "scale": "nominal"}
    if kind == "ordered":
        about |= {"scale": "ordinal", "order": LEVELS}
    if kind == "hierarchical":
        about["taxonomy"] = "illnesses.csv"
        (tmp_path / "illnesses.csv").write_text("leaf,part\n" + "".join(f"{a},{b}\n" for a, b in PATHS.values()))
    keys = LEVELS if kind == "ordered" else DISEASES
    counts = Counter(row[name] for row in rows)
    whole = {key: counts[key] / len(rows) for key in keys}
    if is_given:
        about["reference"] = "reference.csv"
        whole = dict(zip(keys, (0.6, 0.2, 0.2) if kind == "ordered" else (0.15, 0.2, 0.25, 0.25, 0.15), strict=True))
        lines = "".join(f"{key or ''},{share}\n" for key, share in whole.items())
        (tmp_path / "reference.csv").write_text("value,share\n" + lines)
    found, summary = clusters(tmp_path, {"t": 0.25}, rows, {name: about})
    distances = [plain_distance(kind, [row[name] for row in cluster], whole) for cluster in found]
    assert len(distances) > 5
    assert max(distances) <= 0.25 + 1e-9
    assert summary["emd_of"][name]["max"] == pytest.approx(max(distances))
    assert summary["emd_of"][name]["mean"] == pytest.approx(sum(distances) / len(distances))


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"scale": "numeric"}, "not a number, as its scale needs"),
        ({"scale": "ordinal", "order": LEVELS}, "not in its order"),
    ],
)
def test_a_value_that_cannot_be_compared_is_refused(
    about: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = records(30)
    rows[7]["level"] = "elsewhere"
    attribute = {"level": {"role": "confidential", **about}}
    document = {"attributes": {"age": {"role": "quasi_identifier"}, **attribute}, "privacy": {"k": 4, "t": 0.3}}
    (tmp_path / "policy.json").write_text(json.dumps(document | {"undeclared": "drop", "subject": "every_record"}))
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(batch_command(tmp_path)) == 2
    text = capsys.readouterr().err
    assert words in text
    assert "field level" in text
    assert "elsewhere" not in text


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ({"t": 0.1}, "farther from the reference than privacy.t"),
        ({"l": 3, "max_value_share": 1}, "violates privacy.l"),
        ({"l": {"entropy": 3}}, "violates privacy.l"),
        ({"l": {"recursive": [1, 3]}}, "violates privacy.l"),
        ({"max_value_share": 0.4}, "exceeds privacy.max_value_share"),
    ],
)
def test_a_partition_that_violates_a_constraint_is_not_written(
    privacy: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    from shoal.tables import ClusterConstraints, refined

    def without_constraints(*given: Any, **more: Any) -> Int32Vector:
        found: Any = refined(*given, **more | {"constraints": ClusterConstraints()})
        return found  # type: ignore[no-any-return]

    monkeypatch.setattr("shoal.tables.table.refined", without_constraints)
    document = {
        "attributes": {"age": {"role": "quasi_identifier"}, **ILLNESS},
        "privacy": {"k": 4, **privacy},
        "undeclared": "drop",
        "subject": "every_record",
    }
    (tmp_path / "policy.json").write_text(json.dumps(document))
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records()))
    assert main(batch_command(tmp_path)) == 1
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("about", "privacy"),
    [
        ({}, {"l": 3}),
        ({"scale": "ordinal", "order": ["a", "b"]}, {"l": 3, "t": 0.01}),
        ({"type": "string", "reference": "shares.csv"}, {"t": 0.05}),
        ({}, {"l": {"recursive": [2, 3]}, "max_value_share": 0.3}),
    ],
)
def test_kernels_are_compiled_for_any_limits(about: dict[str, Any], privacy: dict[str, Any], tmp_path: Path) -> None:
    """Artificial records need not have the values of a reference or an order."""
    (tmp_path / "shares.csv").write_text("value,share\nA,0.9\nB,0.1\n")
    document = {
        "subject": "every_record",
        "attributes": {"x": {"role": "quasi_identifier"}, "d": {"role": "confidential", **about}},
        "privacy": {"k": 5, **privacy},
    }
    (tmp_path / "policy.json").write_text(json.dumps(document))
    precompile_table(Policy.load(tmp_path / "policy.json"))
