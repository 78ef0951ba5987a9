"""Attackers that read published categories, ranks, times and missing values."""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.attack_results import RULES, impossible, measured, standard_error
from support.attacking import Release, policy_of, quasi, released, tagged
from support.published_data import read_rows

K = 5
COUNT = 3000
DAY_S = 86_400
DAYS = (0, 36_500)
"""Range of the drawn times, in days since 1970."""

Table = Sequence[dict[str, Any]]


@cache
def patients(folder: Path) -> tuple[dict[str, Any], ...]:
    """Records of Adult with a drawn postcode (Zipf's law over 2000 codes) and a drawn time in minutes."""
    rows = [row for row in read_rows(folder, "adult") if "?" not in row.values()]
    draw = np.random.default_rng(17)
    chosen = draw.permutation(len(rows))[:COUNT]
    shares = np.arange(1, 2001) ** -1.0
    postcodes = draw.permutation(np.arange(1000, 3000))[draw.choice(2000, COUNT, p=shares / shares.sum())]
    minutes = draw.integers(DAYS[0] * 1440, DAYS[1] * 1440, COUNT)
    return tuple(
        {
            "age": int(rows[index]["age"]),
            "education": rows[index]["education"],
            "occupation": rows[index]["occupation"],
            "country": rows[index]["native-country"],
            "postcode": str(postcode),
            "time": int(minute) * 60,
        }
        for index, postcode, minute in zip(chosen, postcodes, minutes, strict=True)
    )


def columns(rows: Table, *names: str) -> list[dict[str, Any]]:
    return [{name: row[name] for name in names} for row in rows]


def order_of(folder: Path) -> list[str]:
    """Return the levels of education of Adult, lowest first."""
    ranks = {row["education"]: int(row["education-num"]) for row in read_rows(folder, "adult")}
    return sorted(ranks, key=lambda name: ranks[name])


def occupations(folder: Path) -> dict[str, list[str]]:
    with (folder / "hierarchies" / "adult_occupation.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    groups = sorted({row["level1"] for row in rows} - {"*"})
    return {group: [row["level0"] for row in rows if row["level1"] == group] for group in groups}


def areas() -> dict[str, dict[str, list[str]]]:
    """Return the tree of all postcodes: by their first digit, and by their first two."""
    return {
        str(first): {str(two): [str(two * 100 + n) for n in range(100)] for two in range(first * 10, first * 10 + 10)}
        for first in (1, 2)
    }


def held_by_one(release: Release, name: str, rows: Table) -> tuple[list[float], list[float]]:
    """For each cluster: whether only one member has the published value, and only one record of the data."""
    frequency = Counter(str(row[name]) for row in rows)
    of_one_member, of_one_record = [], []
    for cluster in release.clusters:
        shown = str(json.loads(cluster.rows[0])[name])
        members = Counter(str(release.records[offset][name]) for offset in cluster.offsets)
        of_one_member.append(float(members[shown] == 1))
        of_one_record.append(float(frequency[shown] == 1))
    return of_one_member, of_one_record


SAFE = "more than half of the members have it, and no person has more than half"
NO_BOUND = "point 7: it shows that such a person is in the cluster, not which record"


@pytest.mark.parametrize(
    ("publish", "bound", "source"),
    [
        ("mode", None, NO_BOUND),
        ("median", 0.0, SAFE),
        ("ancestor", 0.0, "a value of a person is published only if all members have it"),
    ],
)
def test_a_published_category_may_be_the_value_of_only_one_member(
    data_dir: Path, publish: str, bound: float | None, source: str
) -> None:
    rows = patients(data_dir)
    nominal = {"role": "quasi_identifier", "scale": "nominal", "publish": publish}
    policy = policy_of(
        {
            "age": quasi(17, 90, integer=True),
            "occupation": nominal | {"taxonomy": occupations(data_dir)},
            "postcode": nominal | {"taxonomy": areas()},
        },
        K,
    )
    release = released(policy, tagged(columns(rows, "age", "occupation", "postcode")))
    assert len(release.clusters) > 200
    for name in ("occupation", "postcode"):
        of_one_member, of_one_record = held_by_one(release, name, rows)
        data = "Adult" if name == "occupation" else "2000 drawn postcodes"
        measured(
            "R17",
            f"published `{publish}` that only one member of its cluster has: {name}, {data}, k = {K}",
            knows="nothing",
            success=float(np.mean(of_one_member)),
            error=standard_error(of_one_member) if bound is None else 0.0,
            bound=bound,
            source=source,
            beside=f"only one record of all {COUNT} has it: {np.mean(of_one_record):.3f}",
        )
    if publish == "mode":
        of_one_member, _ = held_by_one(release, "age", rows)
        of_some = [
            any(release.records[offset]["age"] == json.loads(cluster.rows[0])["age"] for offset in cluster.offsets)
            for cluster in release.clusters
        ]
        measured(
            "R17",
            f"published mean in whole years that is the age of only one member: Adult, k = {K}",
            knows="nothing",
            success=of_one_member,
            source=NO_BOUND,
            beside=f"of at least one member: {np.mean(of_some):.3f}",
        )


def test_a_published_rank_time_or_category_of_a_list_may_be_the_value_of_only_one_member(data_dir: Path) -> None:
    rows = patients(data_dir)
    bounds = [day * DAY_S for day in DAYS]
    policy = policy_of(
        {
            "education": {"role": "quasi_identifier", "scale": "ordinal", "order": order_of(data_dir)},
            "country": {"role": "quasi_identifier", "scale": "nominal"},
            "time": {"role": "quasi_identifier", "scale": "time", "unit": "s", "resolution": "day", "bounds": bounds},
        },
        K,
    )
    release = released(policy, tagged(columns(rows, "education", "country", "time")))
    assert len(release.clusters) > 200
    whole_days = [row | {"time": row["time"] // DAY_S * DAY_S} for row in rows]
    ways = {
        "education": "published median of ranks that only one member of its cluster has: education, Adult",
        "country": "published mode that only one member of its cluster has: country, Adult, no taxonomy",
        "time": "published day, a rounded mean, that is the day of only one member: 100 years, drawn evenly",
    }
    release.records = [one | {"time": one["time"] // DAY_S * DAY_S} for one in release.records]
    for name, what in ways.items():
        of_one_member, of_one_record = held_by_one(release, name, whole_days)
        measured(
            "R17",
            f"{what}, k = {K}",
            knows="nothing",
            success=of_one_member,
            source=NO_BOUND,
            beside=f"only one record of all {COUNT} has it: {np.mean(of_one_record):.3f}",
        )


# ---------------------------------------------------------------- missing values

TREE = {"north": ["n1", "n2"], "south": ["s1", "s2"]}
BORN = {"bounds": ["1950-01-01", "2020-01-01"], "resolution": "year"}


def grouped(scale: str, **more: Any) -> dict[str, Any]:
    return {"role": "quasi_identifier", "scale": scale, "missing": "group", **more}


MISSING = {
    "group": {
        "age": quasi(0, 100, integer=True, missing="group"),
        "school": grouped("ordinal", order=[1, 2, 3, 4]),
        "sex": grouped("nominal"),
        "area": grouped("nominal", taxonomy=TREE, publish="median"),
        "born": grouped("time", **BORN),
    }
}
MISSING["mean"] = {name: MISSING["group"][name] | {"missing": "mean"} for name in ("age", "school", "born")}
NO_VALUE = (None, "", "absent")
"""How a record of a stream is without a value: null, the text that ``missing_values`` has by default, no field."""


def incomplete(names: Sequence[str], seed: int) -> list[dict[str, Any]]:
    """Return random records, each attribute of which has no value with a probability of its own."""
    draw = random.Random(seed)
    drawn: dict[str, Callable[[], Any]] = {
        "age": lambda: draw.randrange(101),
        "school": lambda: draw.randrange(1, 5),
        "sex": lambda: draw.choice("MF"),
        "area": lambda: draw.choice(["n1", "n2", "s1", "s2"]),
        "born": lambda: f"{draw.randrange(1950, 2020)}-{draw.randrange(1, 13):02}-01",
    }
    shares = {name: draw.choice([0.02, 0.2, 0.5, 0.8]) for name in names}
    records = []
    for _ in range(400):
        record: dict[str, Any] = {}
        for name in names:
            value = draw.choice(NO_VALUE) if draw.random() < shares[name] else drawn[name]()
            if value != "absent":
                record[name] = value
        records.append(record)
    return records


def has_value(record: dict[str, Any], name: str) -> bool:
    return record.get(name) not in {None, ""}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("missing", ["group", "mean"])
def test_a_value_is_published_if_more_than_half_of_a_cluster_have_one_else_null_for_all(
    missing: str, rule: str
) -> None:
    names = list(MISSING[missing])
    shown = Counter[tuple[str, bool]]()
    for seed in range(6):
        release = released(
            policy_of(MISSING[missing], 2 + seed % 4, delta=40, rule=rule), tagged(incomplete(names, seed))
        )
        assert sum(len(cluster.rows) for cluster in release.clusters) > 350
        for cluster in release.clusters:
            rows = [json.loads(row) for row in cluster.rows]
            assert len({row[: row.index(b',"tag":')] for row in cluster.rows}) == 1
            assert all(set(row) == {*names, "tag"} for row in rows)
            for name in names:
                with_value = sum(has_value(release.records[offset], name) for offset in cluster.offsets)
                is_published = rows[0][name] is not None
                assert is_published == (2 * with_value > len(rows)), (name, with_value, len(rows))
                shown[name, is_published] += 1
    assert all(shown[name, is_published] > 50 for name in names for is_published in (True, False))
    impossible(
        "R18", "with `missing: group` and `mean`, a value is published for all records of a cluster, or null for all"
    )


@pytest.mark.parametrize("missing", ["group", "mean"])
def test_a_record_without_a_value_is_not_found_inside_its_cluster(missing: str) -> None:
    names = list(MISSING[missing])
    links = []
    for seed in range(6):
        release = released(policy_of(MISSING[missing], K, delta=40), tagged(incomplete(names, seed)))
        for cluster in release.clusters:
            members = [release.records[offset] for offset in cluster.offsets]
            rows = [json.loads(row) for row in cluster.rows]
            for name in names:
                if [has_value(member, name) for member in members].count(False) == 1:
                    with_null = sum(row[name] is None for row in rows)
                    links.append(1 / (with_null or len(rows)))
    assert len(links) > 100
    measured(
        "R18",
        f"row of the only member that misses a value, drawn records, `missing: {missing}`, k = {K}",
        knows="cluster of the target, and that no other member misses it",
        success=float(np.mean(links)),
        bound=1 / K,
        source="1/k: all rows of a cluster are equal",
        beside="if only its row had null: 1.00",
    )
