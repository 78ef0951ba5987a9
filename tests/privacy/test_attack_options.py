"""What k alone does not keep: huge values, values that stay the same, fields that are keys, lonely nights."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle.naive_release import POLICY, broken, load_policy, make_release
from shoal.audit import verify
from support.attack_results import RULES, impossible, measured
from support.attacking import ADULT, Release, policy_of, quasi, released, tagged, zipf_people
from support.by_night import at_night
from support.published_data import read_rows

AGES = {name: quasi(*bounds, integer=True) for name, bounds in ADULT.items()}
FIELDS = (*ADULT, "capital-gain", "salary-class")
COUNT = 6000


@cache
def rows_of(folder: Path) -> tuple[dict[str, Any], ...]:
    """Records of Adult in a shuffled order, with fields that are text."""
    rows = [{name: row[name] for name in FIELDS} for row in read_rows(folder, "adult")]
    chosen = np.random.default_rng(3).permutation(len(rows))[:COUNT]
    numbers = (*ADULT, "capital-gain")
    return tuple(rows[i] | {name: float(rows[i][name]) for name in numbers} for i in chosen)


def gains(folder: Path, k: int, resolution: int = 0, **privacy: Any) -> Release:
    """Capital gains, of which nine in ten are zero; published as exact means no grid helps to hide them."""
    fields = {"age": AGES["age"], "capital-gain": quasi(0, 99_999, resolution=resolution)}
    records = [{name: row[name] for name in fields} for row in rows_of(folder)]
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
            bound=None,
            source="not promised",
            rule=rule,
        )


@pytest.mark.parametrize("rule", RULES)
def test_a_person_is_released_as_often_in_a_window_as_is_allowed_and_no_oftener(data_dir: Path, rule: str) -> None:
    people = zipf_people(COUNT, 400, 1.0)
    records = [{name: int(row[name]) for name in ADULT} for row in rows_of(data_dir)]
    window, most = 1000, 3
    policy = policy_of(AGES, 5, per_subject={"max": most, "window": window}, rule=rule)
    release = released(policy, tagged(records, people))
    seen = Counter((people[offset], offset // window) for cluster in release.clusters for offset in cluster.offsets)
    measured(
        "R25",
        f"most releases of one person in a window of {window}, subjects by Zipf 1.0, per_subject {most}",
        knows="every record of the person",
        success=max(seen.values()),
        bound=most,
        source="per_subject",
        beside=f"suppressed {len(release.suppressed) / COUNT:.2%}",
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
    fields = {**AGES, "salary": {"role": "confidential", "type": "string"}}
    rows = rows_of(data_dir)
    records = tagged([{name: int(row[name]) for name in ADULT} | {"salary": row["salary-class"]} for row in rows])
    policy = policy_of(fields, k)
    release = released(policy, records)
    values = [{json.loads(row)["salary"] for row in cluster.rows} for cluster in release.clusters]
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
    assert verdict.measures["single_value_share.salary"] == pytest.approx(len(agreed) / len(sizes))
    impossible("R19", "shoal verify tells for every release how many clusters agree on a confidential value")


def test_a_confidential_field_that_is_a_key_is_named_by_the_judge_and_refused_by_a_strict_one(tmp_path: Path) -> None:
    world = make_release(tmp_path, 60)
    for number, record in enumerate(world.records):
        record["diagnosis"] = f"{number:04}"
    world.regenerate()
    warnings = [text for text in world.verify().warnings if text.startswith("diagnosis")]
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
