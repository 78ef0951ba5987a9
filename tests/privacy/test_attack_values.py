"""Attackers who know a field, a stable value, a lonely night, or that one person is far above all others."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle.naive_release import POLICY, broken, load_policy, make_release
from shoal.audit import verify
from support.attack_results import RULES, impossible, measured
from support.attacking import AGES, Release, adult, policy_of, quasi, released, tagged, zipf_people
from support.by_night import at_night

K, COUNT = 10, 20_000
KEPT = ("race", "occupation", "fnlwgt", "salary-class")


@cache
def adult_with_texts(folder: Path, rule: str) -> Release:
    """Adult with some of its fields published as they are."""
    kept: dict[str, Any] = {name: {"role": "other", "publish_unchanged": True} for name in KEPT}
    return released(policy_of(AGES | kept, K, rule=rule), tagged(adult(folder, COUNT, *KEPT)))


def shown(release: Release, field: str) -> list[list[Any]]:
    """The field's published values, cluster by cluster."""
    return [[json.loads(row)[field] for row in cluster.rows] for cluster in release.clusters]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("field", ["race", "occupation", "fnlwgt"])
def test_a_known_field_finds_the_record_in_its_cluster(data_dir: Path, field: str, rule: str) -> None:
    links: list[float] = []
    for values in shown(adult_with_texts(data_dir, rule), field):
        times = Counter(values)
        links += [1 / times[value] for value in values]
    measured(
        "R23" if field == "fnlwgt" else "R22",
        f"link of a record of Adult whose {field} is published unchanged, k = {K}",
        knows=f"cluster and {field} of the target",
        success=links,
        source="point 4: such a field is a quasi-identifier",
        beside=f"without the field: {1 / K:.2f}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("field", ["race", "salary-class"])
def test_a_cluster_with_one_confidential_value_shows_it(data_dir: Path, field: str, rule: str) -> None:
    agreed = [float(len(set(values)) == 1) for values in shown(adult_with_texts(data_dir, rule), field) for _ in values]
    measured(
        "R19",
        f"records of Adult whose whole cluster has one {field}, k = {K}",
        knows="cluster of the target",
        success=agreed,
        source="point 3: nothing is promised of confidential values",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("limit", "bound"), [(1, 0.05), *at_night((None, None))])
def test_a_stable_value_is_intersected_over_the_clusters_of_one_person(
    data_dir: Path, limit: int | None, bound: float | None, rule: str
) -> None:
    people = zipf_people(COUNT, 2000, 0.6)
    stable = np.random.default_rng(5).integers(20, size=2000)
    records = [record | {"value": int(stable[who])} for record, who in zip(adult(data_dir, COUNT), people, strict=True)]
    more: dict[str, Any] = {} if limit is None else {"per_subject": {"max": limit, "window": COUNT}}
    fields = AGES | {"value": {"role": "confidential", "type": "integer"}}
    release = released(policy_of(fields, K, rule=rule, **more), tagged(records, people))
    seen: dict[int, list[set[int]]] = defaultdict(list)
    for cluster in release.clusters:
        values = {json.loads(row)["value"] for row in cluster.rows}
        for who in release.people(cluster):
            seen[who].append(values)
    known = [float(set.intersection(*sets) == {stable[who]}) for who, sets in seen.items()]
    measured(
        "R25",
        f"stable value of a person, one of 20, k = {K}, per_subject "
        f"{'not set' if limit is None else f'at most {limit} in the stream'}",
        knows="all clusters of the target",
        success=known,
        bound=bound,
        source="point 5: releases do not compose" if bound is None else "one cluster alone: chance that it agrees",
        beside=f"suppressed {len(release.suppressed) / COUNT:.1%}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
def test_a_mean_among_zeros_shows_the_one_large_value(data_dir: Path, rule: str) -> None:
    rows = adult(data_dir, COUNT, "capital-gain")
    records = [{"age": row["age"], "gain": int(row["capital-gain"])} for row in rows]
    fields = {"age": quasi(17, 90, integer=True), "gain": quasi(0, 99_999, integer=True)}
    release = released(policy_of(fields, K, rule=rule), tagged(records))
    guesses_right = []
    for cluster in release.clusters:
        gains = [records[offset]["gain"] for offset in cluster.offsets]
        largest = max(gains)
        if largest >= 10_000 and sorted(gains)[-2] < largest:
            # Most people have no gain at all: he takes all others for such.
            guess = len(gains) * float(cluster.centroid[1])
            guesses_right.append(float(abs(guess - largest) <= 0.1 * largest))
    measured(
        "R16",
        f"largest capital gain of a cluster of Adult to 10 %, k = {K}",
        knows="that most people have none",
        success=float(np.mean(guesses_right)) if guesses_right else 0.0,
        source="point 7: shows",
        beside=f"{len(guesses_right)} such clusters; suppressed {len(release.suppressed) / COUNT:.2%}",
        rule=rule,
    )


# ---------------------------------------------------------------- what k alone does not keep

FEWER = 6000


def gains(folder: Path, k: int, resolution: int = 0, **privacy: Any) -> Release:
    """Capital gains, of which nine in ten are zero; published as exact means no grid helps to hide them."""
    fields = {"age": AGES["age"], "capital-gain": quasi(0, 99_999, resolution=resolution)}
    records = [{name: int(row[name]) for name in fields} for row in adult(folder, FEWER, "capital-gain")]
    return released(policy_of(fields, k, **privacy), tagged(records))


def worked_out(release: Release, field: str, percent: int, resolution: int = 0) -> list[bool]:
    """For each cluster with an amount above zero: whether the second largest contributor gets near the largest.

    Where a mean was rounded, he takes the largest sum that it may stand for.
    """
    found = []
    for cluster in release.clusters:
        amounts = sorted(Fraction(release.records[offset][field]) for offset in cluster.offsets)
        if amounts[-1]:
            mean = Fraction(json.loads(cluster.rows[0])[field]) + Fraction(resolution, 2)
            guess = mean * len(amounts) - amounts[-2]
            # A published mean of floats is off by its last digit.
            found.append(abs(guess - amounts[-1]) < amounts[-1] * percent / 100 * Fraction(999_999, 1_000_000))
    return found


def test_one_huge_value_among_zeros_is_clipped_and_not_published() -> None:
    for huge in (10**6, 10**9):
        fields = {"age": AGES["age"], "gain": quasi(0, 99_999)}
        records = [{"age": 40, "gain": huge if number == 50 else 0} for number in range(200)]
        release = released(policy_of(fields, 10), tagged(records))
        sums = [float(json.loads(cluster.rows[0])["gain"]) * len(cluster.offsets) for cluster in release.clusters]
        assert max(abs(total) for total in sums) < 0.9 * huge
    impossible("R16", "values are clipped at declared bounds: nothing beyond them shows in a mean")


@pytest.mark.parametrize("resolution", [0, *at_night(1000)])
@pytest.mark.parametrize("k", [5, 10])
def test_how_often_the_second_largest_contributor_works_out_the_largest(
    data_dir: Path, k: int, resolution: int
) -> None:
    setting = f"Adult, k = {k}" + (f", in steps of {resolution}" if resolution else "")
    for rule in RULES:
        plain = gains(data_dir, k, resolution, rule=rule)
        measured(
            "R16",
            f"clusters whose largest capital gain the second largest works out within 10 %, {setting}, no option",
            knows="the second largest contribution of the cluster",
            success=float(np.mean(worked_out(plain, "capital-gain", 10, resolution))),
            source="not promised",
            rule=rule,
        )


@pytest.mark.parametrize("rule", RULES)
def test_a_person_is_released_as_often_in_a_window_as_is_allowed_and_no_oftener(data_dir: Path, rule: str) -> None:
    people = zipf_people(FEWER, 400, 1.0)
    window, most = 1000, 3
    policy = policy_of(AGES, 5, per_subject={"max": most, "window": window}, rule=rule)
    release = released(policy, tagged(adult(data_dir, FEWER), people))
    seen = Counter((people[offset], offset // window) for cluster in release.clusters for offset in cluster.offsets)
    measured(
        "R25",
        f"most releases of one person in a window of {window}, subjects by Zipf 1.0, per_subject {most}",
        knows="every record of the person",
        success=max(seen.values()),
        bound=most,
        source="per_subject",
        beside=f"suppressed {len(release.suppressed) / FEWER:.2%}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("population", [None, 10])
def test_a_flush_does_not_release_one_record_among_k_minus_one_sybils(population: int | None, rule: str) -> None:
    k, nights = 5, 20
    option = {} if population is None else {"min_population": population}
    alone = 0
    for night in range(nights):
        records = [{"age": 20 + 3 * night, "education-num": 9, "hours-per-week": 40}] * k
        release = released(policy_of(AGES, k, rule=rule, **option), tagged(records))
        alone += any(0 in cluster.offsets and len(cluster.offsets) == k for cluster in release.clusters)
    measured(
        "R31",
        f"records alone with {k - 1} sybils when a quiet partition is drained, k = {k}, "
        + ("no option" if population is None else "min_population 2k"),
        knows="when the record arrives; writes k - 1 records",
        success=alone / nights,
        bound=None if population is None else 0.0,
        source="writers must be trusted" if population is None else "min_population",
        rule=rule,
    )


@pytest.mark.parametrize("k", [3, *at_night(10)])
def test_how_often_a_cluster_agrees_on_a_confidential_value_is_what_the_judge_says(
    data_dir: Path, tmp_path: Path, k: int
) -> None:
    fields = {**AGES, "salary-class": {"role": "confidential", "type": "string"}}
    records = tagged(adult(data_dir, FEWER, "salary-class"))
    policy = policy_of(fields, k)
    release = released(policy, records)
    values = [{json.loads(row)["salary-class"] for row in cluster.rows} for cluster in release.clusters]
    sizes = [len(cluster.offsets) for cluster in release.clusters]
    agreed = [size for size, found in zip(sizes, values, strict=True) if len(found) == 1]
    # A file has its clusters in the order of decision; in a topic those of one transaction are sorted.
    clusters = sorted(release.clusters, key=lambda cluster: cluster.number)
    lines = {
        "original.jsonl": [json.dumps(record) for record in records],
        "released.jsonl": [row.decode() for cluster in clusters for row in cluster.rows],
        "evidence.jsonl": [
            json.dumps({"partition": 0, "cluster": cluster.number, "offsets": cluster.offsets}) for cluster in clusters
        ],
    }
    for name, texts in lines.items():
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    verdict = verify(policy, *(tmp_path / name for name in lines))
    assert verdict.exit_code == 0, verdict.text()
    assert verdict.measures["single_value_share.salary-class"] == pytest.approx(len(agreed) / len(sizes))
    impossible("R19", "shoal verify tells for every release how many clusters agree on a confidential value")


def test_a_confidential_field_that_is_a_key_is_named_by_the_judge_and_refused_by_a_strict_one(tmp_path: Path) -> None:
    world = make_release(tmp_path, 60)
    for number, record in enumerate(world.records):
        record["diagnosis"] = f"{number:04}"
    world.regenerate()
    warnings = [one.text for one in world.verify().warnings if one.text.startswith("diagnosis")]
    assert len(warnings) == 2
    assert "unique" in warnings[0]
    assert "rank correlation 1.00" in warnings[1]
    assert broken(world.verify(strict=True)) == {"unchanged"}
    meant = POLICY.replace("{role: confidential,", "{role: confidential, publish_unchanged: true,")
    assert load_policy(tmp_path, meant).unchanged_fields[0].publish_unchanged
    world.policy = meant
    assert world.verify(strict=True).exit_code == 0
    impossible(
        "R23", "the judge measures each such field, warns, and with --strict refuses what the policy does not name"
    )
