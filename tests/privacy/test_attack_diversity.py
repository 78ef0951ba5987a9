"""Attackers of l-diversity and t-closeness: what sizes, places and suppression say of confidential values.

The attacker knows the quasi-identifiers of all members, and in which cluster each is. A quarter of the records has the
rarer salary class.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.attack_results import RULES, impossible, measured
from support.attacking import ADULT, AGES, Release, adult, policy_of, quasi, released, tagged
from support.by_night import at_night
from support.commands import run_command

# ---------------------------------------------------------------- streams

K, DELTA, COUNT = 10, 200, 4000
RARE = ">50K"
REQUIRED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "l = 2, max_value_share 1": {"l": 2, "max_value_share": 1.0},
    "l = 2, max_value_share 0.8": {"l": 2, "max_value_share": 0.8},
    "t = 0.2": {"t": 0.2},
}
PROTECTED = [name for name in REQUIRED if name != "nothing"]
SCALE = np.array([high - low for low, high in ADULT.values()])


@cache
def stream(folder: Path, required: str, rule: str, k: int = K, delta: int = DELTA, count: int = COUNT) -> Release:
    """Release Adult with three quasi-identifiers and a protected salary class."""
    rows = adult(folder, count, "salary-class")
    records = [{name: row[name] for name in ADULT} | {"earns": row["salary-class"].strip(".")} for row in rows]
    privacy = REQUIRED[required]
    earns: dict[str, Any] = {"role": "confidential", "type": "string"}
    if privacy:
        earns["protect"] = True
    if "t" in privacy:
        earns["reference"] = str(written_reference(records))
    return released(policy_of(AGES | {"earns": earns}, k, delta=delta, rule=rule, **privacy), tagged(records))


def written_reference(records: list[dict[str, Any]]) -> Path:
    """Write the distribution of the records to a file in a folder of the build."""
    folder = Path(__file__).resolve().parents[2] / "build" / "references"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"earns-{len(records)}.csv"
    rare = round(sum(record["earns"] == RARE for record in records) / len(records), 4)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("value", "share"), ("<=50K", round(1 - rare, 4)), (RARE, rare)])
    return path


def members_of(release: Release) -> list[list[int]]:
    return [list(cluster.offsets) for cluster in release.clusters]


def rare_in(release: Release, members: list[int]) -> int:
    return sum(release.records[member]["earns"] == RARE for member in members)


def farthest(records: Sequence[dict[str, Any]], members: list[int]) -> int:
    """Return the member that lies farthest from the mean of the others."""
    points = np.array([[records[member][name] for name in ADULT] for member in members]) / SCALE
    others = (points.sum(axis=0) - points) / (len(members) - 1)
    return members[int(np.argmax(np.square(points - others).sum(axis=1)))]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("required", "bound"), [(PROTECTED[1], 0.8), *at_night((PROTECTED[0], None), (PROTECTED[2], None))]
)
def test_the_most_frequent_value_of_a_cluster_is_taken_for_that_of_a_member(
    data_dir: Path, required: str, bound: float | None, rule: str
) -> None:
    release = stream(data_dir, required, rule)
    shares = []
    for members in members_of(release):
        rare = rare_in(release, members)
        assert 0 < rare < len(members) or "l" not in REQUIRED[required]
        shares += [max(rare, len(members) - rare) / len(members)] * len(members)
    if bound is not None:
        assert max(shares) <= bound + 1e-9
    measured(
        "R19",
        f"salary class of a record of Adult is the most frequent one of its cluster, k = {K}, {required}",
        knows="cluster of the target",
        success=float(np.mean(shares)),
        bound=bound,
        source="max_value_share" if bound else "point 3: a limit of a share comes from max_value_share only",
        beside=f"in all records {1 - np.mean([one['earns'] == RARE for one in release.records]):.3f}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("required", [PROTECTED[2], *at_night(*PROTECTED[:2])])
def test_the_farthest_member_is_taken_for_the_one_that_was_added_for_its_value(
    data_dir: Path, required: str, rule: str
) -> None:
    success, chance, single = {}, {}, {}
    for name in (required, "nothing"):
        release = stream(data_dir, name, rule)
        records = release.records
        mixed = [members for members in members_of(release) if 0 < rare_in(release, members) < len(members)]
        success[name] = [float(records[farthest(records, members)]["earns"] == RARE) for members in mixed]
        chance[name] = float(np.mean([rare_in(release, members) / len(members) for members in mixed]))
        one = [members for members in mixed if rare_in(release, members) == 1]
        single[name] = [float(records[farthest(records, members)]["earns"] == RARE) for members in one]
    odd = (
        f"; {np.mean(single[required]):.3f} of {len(single[required])} with one such member" if single[required] else ""
    )
    measured(
        "R20",
        f"farthest member of a cluster of a stream of Adult has the rarer salary class, k = {K}, {required}",
        knows="quasi-identifiers of all members, and in which cluster each is",
        success=success[required],
        source="point 3: a member's place in its cluster may show its value",
        beside=f"by chance {chance[required]:.3f}; with neither {np.mean(success['nothing']):.3f}{odd}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("required", [PROTECTED[2], *at_night(*PROTECTED[:2])])
def test_the_size_of_a_cluster_is_taken_for_a_sign_that_it_grew_for_a_value(
    data_dir: Path, required: str, rule: str
) -> None:
    release = stream(data_dir, required, rule)
    larger: dict[bool, list[float]] = {True: [], False: []}
    for members in members_of(release):
        rare = rare_in(release, members)
        least = -(-len(members) // 5) if required.endswith("0.8") else 1
        larger[rare <= least].append(float(len(members) > K))
    told = [float(np.mean(one)) if one else 0.0 for one in (larger[True], larger[False])]
    measured(
        "R20",
        f"size above k tells clusters with no more of the rarer class than required, k = {K}, {required}",
        knows="sizes of clusters",
        success=abs(told[0] - told[1]),
        bound=None if rule == "block" else 0.1,
        source="point 3: block merges clusters that cannot be completed"
        if rule == "block"
        else "judgement: a cluster is first completed with k members",
        beside=f"above k {told[0]:.3f} of {len(larger[True])}, else {told[1]:.3f} of {len(larger[False])}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("required", "k", "delta"), [(PROTECTED[1], K, 60), *at_night((PROTECTED[0], 3, 30), (PROTECTED[2], K, 60))]
)
def test_a_suppressed_record_is_taken_for_one_with_the_more_frequent_value(
    data_dir: Path, required: str, k: int, delta: int, rule: str
) -> None:
    release = stream(data_dir, required, rule, k, delta)
    gone = [float(release.records[offset]["earns"] != RARE) for offset in release.suppressed]
    entries = [json.loads(line) for one in release.transactions for line in one.topics.get("bad", [])]
    assert Counter(entry["reason"] for entry in entries) == ({"suppressed": len(gone)} if gone else {})
    assert {tuple(entry) for entry in entries} <= {("topic", "partition", "offset", "reason")}
    measured(
        "R21",
        f"suppressed record of a stream of Adult has the more frequent salary class, k = {k}, δ = {delta}, {required}",
        knows="quarantine, or that the record of the target was not released",
        success=float(np.mean(gone)) if gone else 0.0,
        source="point 3: a record is suppressed because others of another value are missing",
        beside=f"{len(gone) / COUNT:.2%} suppressed; in all records "
        f"{np.mean([one['earns'] != RARE for one in release.records]):.3f}",
        rule=rule,
    )


def test_a_reason_never_tells_which_requirement_suppressed_a_record(data_dir: Path) -> None:
    reasons = set()
    for required in REQUIRED:
        release = stream(data_dir, required, "nearest", K, 60)
        entries = [json.loads(line) for one in release.transactions for line in one.topics.get("bad", [])]
        reasons |= {entry["reason"] for entry in entries}
    assert reasons == {"suppressed"}
    impossible("R21", "k, l, t and a largest share of a value have one reason: suppressed")


@pytest.mark.nightly
@pytest.mark.parametrize("rule", RULES)
def test_the_most_frequent_occupation_of_a_cluster_is_taken_for_that_of_a_member(data_dir: Path, rule: str) -> None:
    count = 20_000
    records = adult(data_dir, count, "occupation")
    works = {"role": "confidential", "type": "string", "protect": True}
    release = released(policy_of(AGES | {"occupation": works}, K, delta=DELTA, rule=rule, l=3), tagged(records))
    shares = []
    for members in members_of(release):
        counted = Counter(records[member]["occupation"] for member in members)
        assert len(counted) >= 3
        shares += [max(counted.values()) / len(members)] * len(members)
    assert max(shares) <= 0.5
    common = Counter(record["occupation"] for record in records).most_common(1)[0][1]
    measured(
        "R19",
        f"occupation of a record of Adult is the most frequent one of its cluster, k = {K}, l = 3",
        knows="cluster of the target",
        success=float(np.mean(shares)),
        bound=0.5,
        source="max_value_share, 0.5 with distinct l",
        beside=f"in all records {common / count:.3f}; suppressed {len(release.suppressed) / count:.2%}",
        rule=rule,
    )


# ---------------------------------------------------------------- finished tables

TABLE_K, TABLE_COUNT = 5, 2000


def table(folder: Path, data_dir: Path) -> tuple[Path, list[dict[str, Any]]]:
    """Write a table of Adult: three quasi-identifiers, and a confidential value that a quarter of the records has."""
    rows = adult(data_dir, TABLE_COUNT, "salary-class", seed=12)
    records = [
        {"who": f"p{n % 1800}"} | {name: row[name] for name in ADULT} | {"earns": row["salary-class"].strip(".")}
        for n, row in enumerate(rows)
    ]
    path = folder / "table.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path, records


def clusters_of(
    folder: Path, source: Path, required: dict[str, float], algorithm: str, k: int = TABLE_K
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
    words = ["batch", str(policy), "-i", str(source), "-o", str(folder / "out.jsonl"), "--algorithm", algorithm]
    ended = run_command(*words, "--refine", "none", "--evidence", str(proof), "--quarantine", str(aside))
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line)["offsets"] for line in proof.read_text().splitlines()], aside.read_text().splitlines()


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
        hits[is_protected] = [float(rare[farthest(records, members)]) for members in mixed]
        chance[is_protected] = float(np.mean([rare[members].mean() for members in mixed]))
    (demand, value), *more = required.items()
    stated = ", ".join(f"{name} = {found:g}" for name, found in [(demand, value), *more])
    measured(
        "R20",
        f"farthest member of a cluster of a table of Adult has the rarer salary class, k = {k}, {stated}, {algorithm}",
        knows="quasi-identifiers of all members, and in which cluster each is",
        success=hits[True],
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
