"""Attackers of finished tables with t-closeness: what clusters and suppression say of confidential values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.attacking import ADULT, quasi, standard_error
from support.commands import run_command
from support.ledger import closed, measured
from support.published_data import read_rows

pytestmark = pytest.mark.privacy

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


def clusters_of(folder: Path, source: Path, t: float | None, algorithm: str) -> tuple[list[list[int]], list[str]]:
    """Release a table; return the members of each cluster and the lines of the quarantine file."""
    document = {
        "attributes": {
            "who": {"role": "identifier", "subject": True},
            **{name: quasi(*bounds) for name, bounds in ADULT.items()},
            "earns": {"role": "confidential", "type": "string"},
        },
        "privacy": {"k": K, "per_subject": {"max": 1, "window": 1900}} | ({} if t is None else {"t": t}),
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


@pytest.mark.parametrize(("algorithm", "t"), [("mdav", 0.2), ("strict", 0.2), ("strict", 0.1), ("auto", 0.2)])
def test_the_farthest_member_of_a_cluster_is_taken_for_the_one_that_t_closeness_added(
    data_dir: Path, tmp_path: Path, algorithm: str, t: float
) -> None:
    source, records = table(tmp_path, data_dir)
    rare = np.array([record["earns"] == RARE for record in records])
    assert 0.2 < rare.mean() < 0.3
    hits: dict[float | None, list[float]] = {}
    chance: dict[float | None, float] = {}
    for limit in (t, None):
        clusters, _ = clusters_of(tmp_path, source, limit, algorithm if limit else "mdav")
        # Where all members or none have the value, nothing was added for it.
        mixed = [members for members in clusters if 0 < rare[members].sum() < len(members)]
        hits[limit] = [float(rare[named(records, members)]) for members in mixed]
        chance[limit] = float(np.mean([rare[members].mean() for members in mixed]))
    measured(
        "R20",
        f"farthest member of a cluster of a table of Adult has the rarer salary class, k = {K}, t = {t}, {algorithm}",
        knows="quasi-identifiers of all members, and in which cluster each is",
        success=float(np.mean(hits[t])),
        error=standard_error(hits[t]),
        bound=None,
        source="line 3: t bounds the distribution of a cluster, not what a member's place in it says",
        beside=f"by chance {chance[t]:.3f}; mdav without t {np.mean(hits[None]):.3f}, by chance {chance[None]:.3f}",
    )


def test_which_records_of_a_table_are_suppressed_does_not_depend_on_confidential_values(
    data_dir: Path, tmp_path: Path
) -> None:
    source, records = table(tmp_path, data_dir)
    found = set()
    for seed, limit in ((0, None), (0, 0.2), (1, 0.2), (2, 0.3)):
        shuffled = np.random.default_rng(seed).permutation([record["earns"] for record in records])
        source.write_text(
            "".join(
                json.dumps(record | {"earns": str(earns)}) + "\n"
                for record, earns in zip(records, shuffled, strict=True)
            )
        )
        _, lines = clusters_of(tmp_path, source, limit, "mdav")
        assert {json.loads(line)["reason"] for line in lines} == {"suppressed"}
        found.add(tuple(lines))
    (references,) = found
    assert len(references) == 100
    closed("R21", "a table suppresses nothing for t: clusters are merged until they fit, and quotas ignore such values")
