"""Attackers of finished tables with l-diversity or t-closeness: what clusters and suppression say of values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.attack_results import impossible, measured
from support.attacking import ADULT, quasi, standard_error
from support.by_night import at_night
from support.commands import run_command
from support.published_data import read_rows

K = 5
COUNT = 2000
RARE = ">50K"


def table(folder: Path, data_dir: Path) -> tuple[Path, list[dict[str, Any]]]:
    """Write a table of Adult: three quasi-identifiers, and a confidential value that a quarter of the records has."""
    rows = read_rows(data_dir, "adult")
    chosen = np.random.default_rng(12).permutation(len(rows))[:COUNT]
    records: list[dict[str, Any]] = [
        {"who": f"p{n % 1800}"}
        | {name: int(rows[i][name]) for name in ADULT}
        | {"earns": rows[i]["salary-class"].strip(".")}
        for n, i in enumerate(chosen)
    ]
    path = folder / "table.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path, records


def clusters_of(
    folder: Path, source: Path, required: dict[str, float], algorithm: str, k: int = K
) -> tuple[list[list[int]], list[str]]:
    """Release a table; return the members of each cluster and the lines of the quarantine file."""
    document = {
        "attributes": {
            "who": {"role": "identifier", "subject": True},
            **{name: quasi(*bounds) for name, bounds in ADULT.items()},
            "earns": {"role": "confidential", "type": "string"},
        },
        "privacy": {"k": k, "per_subject": {"max": 1, "window": 1900}, **required},
    }
    policy, proof, aside = folder / "policy.yaml", folder / "evidence.jsonl", folder / "quarantine.jsonl"
    policy.write_text(json.dumps(document))
    ended = run_command(
        *(
            "batch",
            str(policy),
            "-i",
            str(source),
            "-o",
            str(folder / "out.jsonl"),
            "--algorithm",
            algorithm,
            "--refine",
            "none",
        ),
        *("--evidence", str(proof), "--quarantine", str(aside)),
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line)["offsets"] for line in proof.read_text().splitlines()], aside.read_text().splitlines()


def named(records: list[dict[str, Any]], members: list[int]) -> int:
    """Return the member that lies farthest from the others: the one that was taken for its confidential value."""
    scale = np.array([high - low for low, high in ADULT.values()])
    points = np.array([[records[member][name] for name in ADULT] for member in members]) / scale
    others = (points.sum(axis=0) - points) / (len(members) - 1)
    return members[int(np.argmax(np.square(points - others).sum(axis=1)))]


@pytest.mark.parametrize(
    ("algorithm", "required", "k"),
    [
        ("strict", {"t": 0.2}, 5),
        ("auto", {"t": 0.2}, 5),
        ("mdav", {"l": 2, "max_value_share": 0.8}, 10),
        *at_night(
            ("mdav", {"t": 0.2}, 5),
            ("strict", {"t": 0.1}, 5),
            ("mdav", {"l": 2, "max_value_share": 1.0}, 5),
            ("auto", {"l": 2, "max_value_share": 1.0}, 5),
            ("auto", {"l": 2, "max_value_share": 0.8}, 10),
        ),
    ],
    ids=lambda one: "-".join(f"{name}{value}" for name, value in one.items()) if isinstance(one, dict) else str(one),
)
def test_the_farthest_member_of_a_cluster_is_taken_for_the_one_that_was_added_for_its_value(
    data_dir: Path, tmp_path: Path, algorithm: str, required: dict[str, float], k: int
) -> None:
    source, records = table(tmp_path, data_dir)
    rare = np.array([record["earns"] == RARE for record in records])
    assert 0.2 < rare.mean() < 0.3
    hits: dict[bool, list[float]] = {}
    chance: dict[bool, float] = {}
    for is_protected in (True, False):
        clusters, _ = clusters_of(
            tmp_path, source, required if is_protected else {}, algorithm if is_protected else "mdav", k
        )
        # Where all members or none have the value, nothing was added for it.
        mixed = [members for members in clusters if 0 < rare[members].sum() < len(members)]
        assert not is_protected or len(mixed) == len(clusters)
        hits[is_protected] = [float(rare[named(records, members)]) for members in mixed]
        chance[is_protected] = float(np.mean([rare[members].mean() for members in mixed]))
    (demand, value), *more = required.items()
    stated = ", ".join(f"{name} = {found:g}" for name, found in [(demand, value), *more])
    measured(
        "R20",
        f"farthest member of a cluster of a table of Adult has the rarer salary class, k = {k}, {stated}, {algorithm}",
        knows="quasi-identifiers of all members, and in which cluster each is",
        success=float(np.mean(hits[True])),
        error=standard_error(hits[True]),
        bound=None,
        source="point 3: a member's place in its cluster may show its value",
        beside=f"by chance {chance[True]:.3f}; mdav with neither {np.mean(hits[False]):.3f}, "
        f"by chance {chance[False]:.3f}",
    )


def test_which_records_of_a_table_are_suppressed_does_not_depend_on_confidential_values(
    data_dir: Path, tmp_path: Path
) -> None:
    source, records = table(tmp_path, data_dir)
    found = set()
    required: list[dict[str, float]] = [
        {},
        {"t": 0.2},
        {"t": 0.2},
        {"t": 0.3},
        {"l": 2, "max_value_share": 0.8},
        {"l": 2, "max_value_share": 1.0},
    ]
    for seed, one in zip((0, 0, 1, 2, 0, 3), required, strict=True):
        shuffled = np.random.default_rng(seed).permutation([record["earns"] for record in records])
        source.write_text(
            "".join(
                json.dumps(record | {"earns": str(earns)}) + "\n"
                for record, earns in zip(records, shuffled, strict=True)
            )
        )
        _, lines = clusters_of(tmp_path, source, one, "mdav")
        assert {json.loads(line)["reason"] for line in lines} == {"suppressed"}
        found.add(tuple(lines))
    (references,) = found
    assert len(references) == 100
    impossible(
        "R21",
        "a table suppresses nothing for l or t: clusters are merged until they fit, and quotas ignore such values",
    )
