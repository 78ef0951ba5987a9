"""Attackers who write into the input. What they reach is not promised away; it is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.attack_results import RULES, measured
from support.attacking import ADULT, AGES, adult, policy_of, released, released_in_silence, tagged
from support.by_night import at_night

K, DELTA = 10, 100
FALSE = 1_000_000
"""Subjects from here on are the attacker's."""


def near(record: dict[str, Any], error: float, random: np.random.Generator) -> dict[str, Any]:
    """What the attacker takes the target to be, with an error in parts of each range."""
    shown = {}
    for name, (low, high) in ADULT.items():
        guess = record[name] + error * (high - low) * random.standard_normal()
        shown[name] = int(min(max(round(guess), low), high))
    return shown


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("false_ones", "error", "position"),
    [(36, 0.02, 0.0), *at_night((9, 0.02, 0.0), (36, 0.0, 0.0), (36, 0.1, 0.0), (100, 0.02, 0.0), (100, 0.02, 0.05))],
)
def test_false_people_around_a_record(
    data_dir: Path, false_ones: int, error: float, position: float, rule: str
) -> None:
    honest = adult(data_dir, 20_000)
    random = np.random.default_rng(6)
    records, people, targets = [], [], []
    for number, record in enumerate(honest):
        records.append(record)
        people.append(number)
        # Not evenly spaced: the stream's own rhythm must not decide.
        if number > DELTA and random.random() < 1 / 200:
            targets.append(len(records) - 1)
            records += [near(record, error, random) for _ in range(false_ones)]
            people += range(FALSE + len(records), FALSE + len(records) + false_ones)
    release = released(policy_of(AGES, K, delta=DELTA, position=position, rule=rule), tagged(records, people))
    cluster_of = {offset: cluster for cluster in release.clusters for offset in cluster.offsets}
    alone = [
        float(all(who >= FALSE for who in release.people(cluster_of[target]) if who != people[target]))
        for target in targets
    ]
    honest_ones = [sum(who < FALSE for who in release.people(cluster_of[target])) for target in targets]
    share = sum(who >= FALSE for who in people) / len(people)
    measured(
        "R29",
        f"record of Adult alone among {false_ones} false ones that resemble it to {error:.0%} of each range, sent "
        f"right behind it, k = {K}, position {position}",
        knows="values of the target so well, and when it comes",
        success=alone,
        source="point 7: writers are trusted",
        beside=f"{np.mean(honest_ones):.2f} honest people in its cluster; the same share of the whole stream, "
        f"{share:.2f}, sent without a target leaves {1 + (K - 1) * (1 - share):.2f}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("share", [0.8, *at_night(0.1, 0.5, 0.95)])
def test_a_flood_reduces_the_other_people_as_the_formula_says(data_dir: Path, share: float, rule: str) -> None:
    random = np.random.default_rng(9)
    count = 20_000
    people = np.where(random.random(count) < share, FALSE, 0) + np.arange(count)
    release = released(policy_of(AGES, K, delta=DELTA, rule=rule), tagged(adult(data_dir, count), people.tolist()))
    honest = np.array([sum(who < FALSE for who in release.people(cluster)) for cluster in release.clusters])
    # Seen by an honest record: a cluster of h honest people counts h times, and its records see the same.
    others = float((honest**2).sum() / honest.sum())
    error = float(np.sqrt(np.square(honest**2 - others * honest).sum()) / honest.sum())
    formula = 1 + (K - 1) * float(np.mean(people < FALSE))
    measured(
        "R30",
        f"false share {share}: how much fewer honest people an honest record's cluster has than the formula says",
        knows="which records are his own",
        success=max(0.0, 1 - others / formula),
        error=error / formula,
        bound=0.0,
        source="point 7: an untargeted flood; k acts like 1 + (k - 1)(1 - f)",
        beside=f"{others:.2f} of {formula:.2f}; alone {np.sum(honest == 1) / honest.sum():.3f}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("population", "false_ones", "bound"), [(2 * K, 2 * K - 2, 0.0), *at_night((2 * K, 2 * K - 1, None))]
)
def test_silence_after_a_record_and_its_false_neighbours(
    data_dir: Path, population: int, false_ones: int, bound: float | None, rule: str
) -> None:
    targets = adult(data_dir, 50)
    policy = policy_of(AGES, K, delta=DELTA, max_delay_s=5.0, min_population=population, rule=rule)
    alone = []
    for target in targets:
        people = [0, *range(FALSE, FALSE + false_ones)]
        release = released_in_silence(policy, tagged([target] * (1 + false_ones), people))
        alone.append(float(any(0 in cluster.offsets for cluster in release.clusters)))
    measured(
        "R31",
        f"record alone in a quiet partition, {false_ones} false ones after it, k = {K}, "
        f"min_population {population}, released by the clock",
        knows="values of the target, and when it comes",
        success=float(np.mean(alone)),
        bound=bound,
        source="point 7: writers are trusted" if bound is None else "min_population",
        rule=rule,
    )
