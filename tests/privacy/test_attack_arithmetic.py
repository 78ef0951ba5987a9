"""Attackers who calculate: with the others of a cluster known, with sums scraped before and after it."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from support.attack_results import RULES, impossible, measured
from support.attacking import ADULT, AGES, Release, adult, column, policy_of, quasi, released, tagged
from support.by_night import at_night

STEP_CLUSTERS = 20

STEPPED = (
    *("shoal_sse", "shoal_sst", "shoal_attribute_loss", "shoal_reordering", "shoal_delay", "shoal_values_clipped"),
)


def rounded_quotient(total: int, size: int) -> int:
    """Exact, and half to even."""
    whole, rest = divmod(total, size)
    return whole + (2 * rest > size or (2 * rest == size and whole % 2 == 1))


def guesses_of_the_last(
    release: Release, prior: Counter[int], *, rounded: bool
) -> tuple[dict[str, list[float]], float]:
    """How often each way to guess an age from the other members' ages and the published mean is exactly right.

    The second figure is the success of a guess at random among the ages that fit.
    """
    hits: dict[str, list[float]] = {"middle": [], "commonest": [], "nearest": []}
    chances = []
    random = np.random.default_rng(2)
    for cluster in release.clusters:
        ages = [release.records[offset]["age"] for offset in cluster.offsets]
        last = int(random.integers(len(ages)))
        others, size, mean = sum(ages) - ages[last], len(ages), float(cluster.centroid[0])
        possible = [round(size * mean - others)]
        if rounded:
            # The sum of a cluster whose mean rounds to m lies in an interval of the cluster's size: n ages fit, and
            # one more or less where a tie is rounded to even.
            near = range(possible[0] - size - 2, possible[0] + size + 3)
            fitting = [age for age in near if rounded_quotient(others + age, size) == mean]
            assert abs(len(fitting) - size) <= 1
            possible = [age for age in fitting if 17 <= age <= 90]
        chances.append(1 / len(possible))
        hits["middle"].append(float(possible[(len(possible) - 1) // 2] == ages[last]))
        hits["commonest"].append(float(max(possible, key=lambda age: prior[age]) == ages[last]))
        hits["nearest"].append(float(min(possible, key=lambda age: abs(age - mean)) == ages[last]))
    return hits, float(np.mean(chances))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("k", [10, *at_night(3, 5)])
def test_all_other_ages_of_a_cluster_seldom_give_the_last_age_exactly(data_dir: Path, k: int, rule: str) -> None:
    count = 20_000
    rows = adult(data_dir, count)
    prior = Counter(row["age"] for row in rows)
    # The attacker's choice of the last member depends on the order of clusters, and so on the transactions.
    release = released(policy_of(AGES, k, rule=rule), tagged(rows), step=64)
    hits, chance = guesses_of_the_last(release, prior, rounded=True)
    best = max(hits, key=lambda way: sum(hits[way]))
    exact = AGES | {"age": quasi(17, 90, resolution=0)}
    few = released(policy_of(exact, k, rule=rule), tagged(rows[:4_000]), step=64)
    told, _ = guesses_of_the_last(few, prior, rounded=False)
    control = float(np.mean(told["nearest"]))
    assert control > 0.99, "an exact mean gives the last one away: the attack works"
    measured(
        "R13",
        f"age of the last member, k = {k}, published in whole years",
        knows="ages of the k - 1 others, ages of the population",
        success=hits[best],
        # How many of the values that fit are likely depends on how wide clusters are, which no policy bounds.
        source="point 7: at least k - 1 whole years fit, and not all are as likely",
        beside=f"best of three ways to guess: the {best}; with resolution 0: {control:.2f}; if all values that fit "
        f"were as likely: {chance:.3f}",
        rule=rule,
    )


def pair_of(total: float, squares: float) -> tuple[float, float]:
    """Two numbers from their sum and their sum of squares."""
    root = max(0.0, 2 * squares - total * total) ** 0.5
    return (total - root) / 2, (total + root) / 2


def stepped_of(scrape: dict[str, float]) -> list[str]:
    return [name for name in scrape if name.startswith(STEPPED)]


@pytest.mark.parametrize("rule", RULES)
def test_two_scrapes_around_a_cluster_do_not_give_its_last_two_values(data_dir: Path, rule: str) -> None:
    k = 10
    # Block lets all go that it holds: only where that is less than 2k people is it one cluster, which he needs.
    delta = k + 5 if rule == "block" else 100
    rows = column(data_dir, "census", "TAXINC")
    high = max(row["TAXINC"] for row in rows)
    policy = policy_of({"TAXINC": quasi(0, high, resolution=0)}, k, delta=delta, rule=rule)
    release = released(policy, tagged(rows), step=1, scraped=STEPPED)
    pairs = list(zip(release.scrapes, release.scrapes[1:], strict=False))
    changes = [after for before, after in pairs if any(after[one] != before.get(one, 0) for one in stepped_of(after))]
    assert changes, "they do move"
    assert len(changes) <= len(release.clusters) / STEP_CLUSTERS

    hits: dict[str, list[float]] = {"scraped": [], "true": []}
    sums = [scrape["shoal_sse_total[]"] for scrape in release.scrapes]
    live = [transaction for transaction in release.transactions if transaction.newest < len(rows) - 1]
    assert [len(transaction.clusters) for transaction in live] == [1] * len(live)
    for transaction in live:
        for cluster in transaction.clusters:
            values = [release.records[offset]["TAXINC"] for offset in cluster.offsets]
            mean, known, unknown = float(cluster.centroid[0]), values[2:], sorted(values[:2])
            seen = (sums[transaction.newest] - sums[transaction.newest - 1]) * high**2
            true = sum((value - mean) ** 2 for value in values)
            for way, error in (("scraped", seen), ("true", true)):
                squares = error + len(values) * mean**2 - sum(value**2 for value in known)
                guess = pair_of(len(values) * mean - sum(known), squares)
                hits[way].append(float(max(abs(a - b) for a, b in zip(guess, unknown, strict=True)) < 1))
    assert np.mean(hits["true"]) > 0.95, "a live sum of squares gives both away: the attack works"
    measured(
        "R14",
        f"last two incomes of Census, k = {k}, one cluster per transaction, scraped after each",
        knows="k - 2 members, exact centroid, every scrape",
        success=float(np.mean(hits["scraped"])),
        bound=1 / STEP_CLUSTERS,
        source=f"series move once in {STEP_CLUSTERS} clusters, three digits",
        beside=f"a live sum of squares: {np.mean(hits['true']):.2f}",
        rule=rule,
    )


def test_cluster_summaries_contain_centroid_size_and_subjects_only(data_dir: Path) -> None:
    release = released(policy_of(AGES, 5), tagged(adult(data_dir, 1000)))
    summaries = [json.loads(text) for one in release.transactions for text in one.topics.get("sums", [])]
    assert len(summaries) == len(release.clusters)
    assert {tuple(summary) for summary in summaries} == {("centroid", "size", "subjects")}
    assert {tuple(summary["centroid"]) for summary in summaries} == {tuple(ADULT)}
    impossible("R14", "the topic of clusters holds centroid, size and number of subjects: a closed list")


def test_every_published_number_is_a_multiple_of_what_the_policy_says(data_dir: Path) -> None:
    fields = ("TAXINC", "POTHVAL")
    rows = column(data_dir, "census", *fields)
    policy = policy_of({name: quasi(0, max(row[name] for row in rows)) for name in fields}, 3)
    release = released(policy, tagged(rows))
    steps = [attribute.publication_step(table=False) for attribute in policy.quasi_identifiers]
    assert all(step > 1 for step in steps)
    shown = [json.loads(row, parse_int=Decimal, parse_float=Decimal) for one in release.clusters for row in one.rows]
    assert len(shown) == len(rows)
    for row in shown:
        assert [row[name] % step for name, step in zip(fields, steps, strict=True)] == [0, 0]
    impossible("R17", "a published number is a mean, rounded to a grid that the policy fixes")
