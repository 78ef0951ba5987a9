"""Attackers who reason: from quasi-identifiers to confidential values, from a node to its children, from null.

A model is trained on the release alone: published quasi-identifiers, each with the confidential value of its row.
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
from shoal.arrays import Float64Matrix, Float64Vector, Int64Matrix
from shoal.streams import DecidedCluster
from support.attack_results import measured
from support.attacking import ADULT, AGES, Release, adult, policy_of, released, tagged, zipf_people
from support.by_night import at_night

UNDER = ["awo", *at_night("nearest", "block")]

# ---------------------------------------------------------------- a model of the confidential value

K, COUNT, BINS, MOST = 5, 6000, 10, 12
"""MOST: the largest clusters of which all assignments are compared."""


@cache
def with_values(folder: Path, field: str, rule: str, *, is_shuffled: bool = False) -> Release:
    """Release Adult with three quasi-identifiers and one protected field, k = 5, l = 3."""
    records = [dict(record) for record in adult(folder, COUNT, field)]
    if is_shuffled:
        order = np.random.default_rng(2).permutation(COUNT).tolist()
        records = [record | {field: records[i][field]} for record, i in zip(records, order, strict=True)]
    protected = {field: {"role": "confidential", "type": "string", "protect": True}}
    return released(policy_of(AGES | protected, K, delta=200, rule=rule, l=3), tagged(records))


def binned(values: Float64Matrix, edges: Sequence[Float64Vector]) -> Int64Matrix:
    columns = [np.searchsorted(edge, column, side="right") for edge, column in zip(edges, values.T, strict=True)]
    return np.stack(columns, axis=1)


def log_chances(release: Release, field: str) -> tuple[Float64Matrix, dict[str, int]]:
    """Return the logarithm of the chance of each value for each record: naive Bayes on the published rows.

    The second result is the column of each value.
    """
    rows = [json.loads(row) for cluster in release.clusters for row in cluster.rows]
    shown = np.array([[row[name] for name in ADULT] for row in rows], np.float64)
    column = {value: number for number, value in enumerate(sorted({row[field] for row in rows}))}
    codes = np.array([column[row[field]] for row in rows])
    edges = [np.unique(np.quantile(one, np.linspace(0, 1, BINS + 1)[1:-1])) for one in shown.T]
    counts = np.bincount(codes, minlength=len(column)).astype(np.float64)
    own = binned(np.array([[one[name] for name in ADULT] for one in release.records], np.float64), edges)
    chances = np.tile(np.log(counts), (len(own), 1))
    for number, bins in enumerate(binned(shown, edges).T):
        table = np.ones((BINS, len(column)))
        np.add.at(table, (bins, codes), 1.0)
        chances += np.log(table / (counts + BINS))[own[:, number]]
    chances -= np.logaddexp.reduce(chances, axis=1)[:, None]
    return chances, column


def likeliest(chances: Float64Matrix) -> list[int]:
    """Return the row of each member such that the sum of ``chances`` (members, rows) is greatest. Cost: O(n 2^n)."""
    count = len(chances)
    best, choice = np.full(1 << count, -np.inf), np.zeros(1 << count, np.int64)
    best[0] = 0.0
    for taken in range((1 << count) - 1):
        member = taken.bit_count()
        for row in range(count):
            after = taken | 1 << row
            if after != taken and best[taken] + chances[member, row] > best[after]:
                best[after], choice[after] = best[taken] + chances[member, row], row
    found, taken = [], (1 << count) - 1
    for _ in range(count):
        found.append(int(choice[taken]))
        taken ^= 1 << found[-1]
    return found[::-1]


def own_row(values: Sequence[str], own: str, named: str) -> float:
    """Return the chance that a row with the named value is the own one: rows with equal values are alike."""
    return (named == own) / Counter(values)[named]


def linked(release: Release, field: str) -> list[float]:
    """For each record: the chance that the row whose value suits its quasi-identifiers best is its own."""
    chances, column = log_chances(release, field)
    found = []
    for cluster in release.clusters:
        values = [json.loads(row)[field] for row in cluster.rows]
        average = np.logaddexp.reduce(chances[list(cluster.offsets)], axis=0)
        for offset in cluster.offsets:
            # What is likelier for the target than for the others.
            named = max(sorted(set(values)), key=lambda one: chances[offset, column[one]] - average[column[one]])
            found.append(own_row(values, release.records[offset][field], named))
    return found


def assigned(release: Release, field: str) -> tuple[list[float], list[float]]:
    """For each record: the chance that the likeliest assignment gives it its own row; whether it gives its value."""
    chances, column = log_chances(release, field)
    rows, right = [], []
    for cluster in release.clusters:
        values = [json.loads(row)[field] for row in cluster.rows]
        if len(values) > MOST:
            continue
        members = list(cluster.offsets)
        given = likeliest(chances[members][:, [column[one] for one in values]])
        for offset, row in zip(members, given, strict=True):
            own = release.records[offset][field]
            rows.append(own_row(values, own, values[row]))
            right.append(float(values[row] == own))
    return rows, right


MODEL = "point 3: a value that goes with quasi-identifiers is told by them"
FIELD = "marital-status"


@pytest.mark.parametrize("rule", UNDER)
def test_a_model_trained_on_the_release_links_a_row_above_one_in_k(data_dir: Path, rule: str) -> None:
    release, shuffled = (with_values(data_dir, FIELD, rule, is_shuffled=one) for one in (False, True))
    measured(
        "R40",
        f"row of a record of Adult, whose {FIELD} is confidential, k = {K}, l = 3",
        knows="cluster and quasi-identifiers of the target",
        success=linked(release, FIELD),
        source=MODEL,
        beside=f"1/k {1 / K:.3f}; values shuffled over all records {np.mean(linked(shuffled, FIELD)):.3f}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", UNDER)
def test_rows_are_assigned_to_the_known_members_of_a_cluster(data_dir: Path, rule: str) -> None:
    release, shuffled = (with_values(data_dir, FIELD, rule, is_shuffled=one) for one in (False, True))
    rows, values = assigned(release, FIELD)
    common = [Counter(release.records[one][FIELD] for one in cluster.offsets) for cluster in release.clusters]
    guessed = sum(max(counts.values()) for counts in common) / sum(counts.total() for counts in common)
    measured(
        "R41",
        f"rows of a cluster of Adult, whose {FIELD} is confidential, k = {K}, l = 3",
        knows="quasi-identifiers of all members",
        success=rows,
        source=MODEL,
        beside=f"1/k {1 / K:.3f}; shuffled {np.mean(assigned(shuffled, FIELD)[0]):.3f}; the value of a member "
        f"{np.mean(values):.3f}, by the most frequent one {guessed:.3f}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", UNDER)
def test_a_suppressed_record_is_taken_for_one_with_the_most_frequent_of_many_values(data_dir: Path, rule: str) -> None:
    release = with_values(data_dir, FIELD, rule)
    rows = [json.loads(row)[FIELD] for cluster in release.clusters for row in cluster.rows]
    ((common, count),) = Counter(rows).most_common(1)
    assert len(release.suppressed) > COUNT / 20
    measured(
        "R21",
        f"suppressed record of Adult has the most frequent {FIELD} of the release, k = {K}, δ = 200, l = 3",
        knows="that the record of the target was not released",
        success=[float(release.records[offset][FIELD] == common) for offset in release.suppressed],
        source="point 3: a record is suppressed because others of another value are missing",
        beside=f"of released records {count / len(rows):.3f}; suppressed {len(release.suppressed) / COUNT:.1%}",
        rule=rule,
    )


# ---------------------------------------------------------------- the children of a published node

TREES = ("education", "marital-status")


def paths_of(folder: Path, name: str) -> dict[str, list[str]]:
    """Return the nodes from each category of Adult up to the root."""
    with (folder / "hierarchies" / f"adult_{name}.csv").open(newline="") as file:
        return {row[0]: row for row in list(csv.reader(file))[1:]}


def nested(paths: Sequence[Sequence[str]]) -> Any:
    """Return a taxonomy as a policy has it, of paths without the root."""
    if len(paths[0]) == 1:
        return [leaf for (leaf,) in paths]
    return {
        top: nested([path[:-1] for path in paths if path[-1] == top]) for top in dict.fromkeys(p[-1] for p in paths)
    }


@cache
def with_nodes(folder: Path, k: int, rule: str) -> Release:
    """Release Adult with two numbers and two taxonomies, of which common ancestors are published."""
    fields: dict[str, Any] = {name: AGES[name] for name in ("age", "hours-per-week")}
    for name in TREES:
        tree = nested([path[:-1] for path in paths_of(folder, name).values()])
        fields[name] = {"role": "quasi_identifier", "scale": "nominal", "taxonomy": tree, "publish": "ancestor"}
    records = [{name: record[name] for name in fields} for record in adult(folder, 4000, *TREES)]
    return released(policy_of(fields, k, rule=rule), tagged(records))


@pytest.mark.parametrize("rule", UNDER)
@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("k", [5, *at_night(2, 10)])
def test_all_but_one_member_are_taken_to_be_under_one_child_of_a_published_node(
    data_dir: Path, k: int, name: str, rule: str
) -> None:
    release, paths = with_nodes(data_dir, k, rule), paths_of(data_dir, name)
    height = len(next(iter(paths.values()))) - 1
    hits, above, lost, sizes = [], [], np.zeros(2), 0
    for cluster in release.clusters:
        members = [paths[release.records[offset][name]] for offset in cluster.offsets]
        level = next(n for n in range(height + 1) if len({path[n] for path in members}) == 1)
        assert json.loads(cluster.rows[0])[name] == members[0][level]
        under = Counter(path[level - 1] for path in members).most_common(2) if level else []
        # A node with two members under each of two children, or else the node above it.
        other = level if not level or under[1][1] > 1 else min(level + 1, height)
        is_odd = bool(level) and under[0][1] == len(members) - 1
        lost, sizes = lost + len(members) * np.array([level, other]) / height, sizes + len(members)
        hits += [float(is_odd)] if level else []
        above += [(other, level if is_odd else 0)] if level else []
    # The attacker names the level of the lowest common node that is right most often for the level he sees.
    told = [Counter(own for other, own in above if other == seen and own) for seen in {other for other, _ in above}]
    instead = sum(max(counts.values(), default=0) for counts in told) / len(above)
    before, after = lost / sizes
    measured(
        "R42",
        f"all members of a cluster of Adult but one are under one child of its {name}, `ancestor`, k = {k}",
        knows="clusters that publish a node above the leaves",
        success=hits,
        source="point 7: the node is the lowest common one",
        beside=f"loss {before:.3f}; with such nodes replaced by the next ones above {instead:.3f}, loss {after:.3f}",
        rule=rule,
    )


# ---------------------------------------------------------------- null

VISITS, PEOPLE = 6000, 600
UNKNOWN = ("occupation", "workclass")
"""Fields of Adult that lack a value in the same records."""


def has_null(cluster: DecidedCluster, name: str) -> bool:
    return json.loads(cluster.rows[0])[name] is None


@pytest.mark.parametrize("rule", UNDER)
@pytest.mark.parametrize("missing", ["group", "mean"])
def test_null_tells_of_a_person_that_there_is_no_value(data_dir: Path, missing: str, rule: str) -> None:
    name = "occupation" if missing == "group" else "hours-per-week"
    chosen = UNKNOWN if missing == "group" else (name,)
    of_text: dict[str, Any] = {"role": "quasi_identifier", "scale": "nominal"}
    fields = AGES | {one: AGES.get(one, of_text) | {"missing": missing} for one in chosen}
    # Who has no occupation has no class of work either; with `mean`, hours take the place of both.
    records = [
        {one: row[one] for one in fields} | {one: None for one in chosen if row["occupation"] == "?"}
        for row in adult(data_dir, VISITS, *UNKNOWN)
    ]
    release = released(policy_of(fields, K, delta=1000, rule=rule), tagged(records))
    nulls = [cluster for cluster in release.clusters if has_null(cluster, name)]
    shares = [float(np.mean([records[offset][name] is None for offset in one.offsets])) for one in nulls]
    assert min(shares) >= 1 / 2
    measured(
        "R18",
        f"members of a cluster of Adult with null that have no value, `missing: {missing}`, k = {K}, δ = 1000",
        knows="cluster of the target",
        success=shares,
        source="point 7: null shows that at least half of the people have none",
        beside=f"{len(nulls)} of {len(release.clusters)} clusters; all have none in {np.mean(np.equal(shares, 1)):.2f}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", UNDER)
@pytest.mark.parametrize("missing", ["group", "mean"])
def test_null_is_published_only_if_half_of_the_people_have_no_value(data_dir: Path, missing: str, rule: str) -> None:
    people, draw = zipf_people(VISITS, PEOPLE, 1.0), np.random.default_rng(1)
    rows = adult(data_dir, PEOPLE, "occupation")
    records: list[dict[str, Any]] = []
    for who in people:
        hours = min(max(int(rows[who]["hours-per-week"]) + int(draw.integers(-3, 4)), 1), 99)
        records.append({name: rows[who][name] for name in ADULT})
        records[-1]["hours-per-week"] = None if rows[who]["occupation"] == "?" else hours
    fields = AGES | {"hours-per-week": AGES["hours-per-week"] | {"missing": missing}}
    release = released(policy_of(fields, K, delta=400, rule=rule), tagged(records, people))
    fewer, by_records = [], []
    for cluster in release.clusters:
        hours_of = [(people[offset], records[offset]["hours-per-week"]) for offset in cluster.offsets]
        with_value = {who for who, hours in hours_of if hours is not None}
        has_most = 2 * len(with_value) > len({who for who, _ in hours_of})
        fewer += [float(has_most)] if has_null(cluster, "hours-per-week") else []
        by_records += [float(has_most)] if 2 * sum(one is None for _, one in hours_of) >= len(hours_of) else []
    assert fewer
    assert any(by_records)
    measured(
        "R18",
        f"clusters of Adult with null, more than half of whose people have a value, subjects by Zipf 1.0, "
        f"`missing: {missing}`, k = {K}",
        knows="clusters",
        success=float(np.mean(fewer)),
        bound=0.0,
        source="null only where half of the people have none",
        beside=f"{len(fewer)} clusters; if records were counted {np.mean(by_records):.3f} of {len(by_records)}",
        rule=rule,
    )
