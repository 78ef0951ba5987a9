"""Attackers who know a field, a stable value, or that one person is far above all others."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shoal.cli import main
from support.attack_results import RULES, impossible, measured
from support.attacking import (
    ADULT,
    Release,
    adult,
    policy_of,
    quasi,
    released,
    standard_error,
    tagged,
    zipf_people,
)
from support.by_night import at_night
from support.published_data import read_rows

K, COUNT = 10, 20_000
AGES = {name: quasi(*bounds, integer=True) for name, bounds in ADULT.items()}
KEPT = ("race", "occupation", "fnlwgt", "salary-class")


@cache
def adult_with_texts(folder: Path, rule: str) -> Release:
    """Adult with some of its fields published as they are."""
    rows = read_rows(folder, "adult")
    chosen = np.random.default_rng(3).permutation(len(rows))[:COUNT]
    records: list[dict[str, Any]] = [
        {name: int(rows[index][name]) for name in ADULT} | {name: rows[index][name] for name in KEPT}
        for index in chosen
    ]
    kept: dict[str, Any] = {name: {"role": "other", "publish_unchanged": True} for name in KEPT}
    return released(policy_of(AGES | kept, K, rule=rule), tagged(records))


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
        success=float(np.mean(links)),
        error=standard_error(links),
        bound=None,
        source="point 4: such a field is a quasi-identifier",
        beside=f"without the field: {1 / K:.2f}",
        rule=rule,
    )


def test_an_unchanged_field_must_be_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    attributes = {"age": quasi(0, 110), "ward": {"role": "other", "type": "string"}}
    document = {"attributes": attributes, "subject": "every_record", "privacy": {"k": 3}, "stream": {"delta": 20}}
    path = tmp_path / "policy.yaml"
    path.write_text(json.dumps(document))
    assert main(["check", str(path)]) == 2
    assert "attributes.ward.publish_unchanged" in capsys.readouterr().err
    impossible("R22", "a field is published unchanged only where the policy says publish_unchanged")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("field", ["race", "salary-class"])
def test_a_cluster_with_one_confidential_value_shows_it(data_dir: Path, field: str, rule: str) -> None:
    agreed = [float(len(set(values)) == 1) for values in shown(adult_with_texts(data_dir, rule), field) for _ in values]
    measured(
        "R19",
        f"records of Adult whose whole cluster has one {field}, k = {K}",
        knows="cluster of the target",
        success=float(np.mean(agreed)),
        error=standard_error(agreed),
        bound=None,
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
        success=float(np.mean(known)),
        error=standard_error(known),
        bound=bound,
        source="point 5: releases do not compose" if bound is None else "one cluster alone: chance that it agrees",
        beside=f"suppressed {len(release.suppressed) / COUNT:.1%}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
def test_a_mean_among_zeros_shows_the_one_large_value(data_dir: Path, rule: str) -> None:
    rows = read_rows(data_dir, "adult")
    chosen = np.random.default_rng(3).permutation(len(rows))[:COUNT]
    records = [{"age": int(rows[index]["age"]), "gain": int(rows[index]["capital-gain"])} for index in chosen]
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
        bound=None,
        source="point 7: shows",
        beside=f"{len(guesses_right)} such clusters; suppressed {len(release.suppressed) / COUNT:.2%}",
        rule=rule,
    )
