"""Attackers who read the metrics only: live counts of records and clusters are a clock."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.attack_results import RULES, measured
from support.attacking import ADULT, Release, adult, policy_of, quasi, released, standard_error, tagged, zipf_people
from support.by_night import at_night

AGES = {name: quasi(*bounds, integer=True) for name, bounds in ADULT.items()}


def series(release: Release, name: str, *parts: str) -> np.ndarray:
    """Values of a metric in all scrapes, added up over the samples whose labels contain these parts."""
    return np.array(
        [
            sum(value for key, value in scrape.items() if key.startswith(name) and all(part in key for part in parts))
            for scrape in release.scrapes
        ]
    )


@pytest.mark.parametrize("step", [100, *at_night(1)])
def test_the_count_of_arrivals_tells_the_place_of_a_record_as_exactly_as_it_is_scraped(
    data_dir: Path, step: int
) -> None:
    records = tagged(adult(data_dir, 2000))
    release = released(policy_of(AGES, 10), records, step=step, scraped=True)
    arrived = series(release, "shoal_records_total", "('outcome', 'in')")
    assert arrived[-1] == 2000
    # The attacker sees the person at the moment t, looks at the scrapes before and after t, and guesses among the new
    # records.
    new = np.diff(arrived, prepend=0)
    hits = np.repeat(1 / new, new.astype(int))
    measured(
        "R2",
        f"place of a record in the order of arrival, {step} records between two scrapes",
        knows="when the record arrived; every scrape, and not the output",
        success=float(hits.mean()),
        bound=None,
        source="point 8: counts are live",
        beside="one of all records that arrived between the scrapes before and after it",
    )


@pytest.mark.parametrize("rule", RULES)
def test_counts_tell_when_and_how_large_each_cluster_leaves(data_dir: Path, rule: str) -> None:
    people = zipf_people(1000, 600, 0.8)
    release = released(policy_of(AGES, 10, rule=rule), tagged(adult(data_dir, 1000), people), step=1, scraped=True)
    clusters = np.diff(series(release, "shoal_clusters_released_total"), prepend=0)
    records = np.diff(series(release, "shoal_cluster_size_sum"), prepend=0)
    subjects = np.diff(series(release, "shoal_cluster_subjects_sum"), prepend=0)
    known = []
    for transaction in (one for one in release.transactions if one.clusters and one.newest < 999):
        assert clusters[transaction.newest] == len(transaction.clusters)
        told = records[transaction.newest], subjects[transaction.newest]
        sizes = [(len(cluster.offsets), len(release.people(cluster))) for cluster in transaction.clusters]
        known += [float(told == size) for size in sizes]
    assert len(known) > 40
    measured(
        "R2",
        "clusters of which two scrapes tell records and people exactly, a scrape after each record",
        knows="every scrape, and not the output",
        success=float(np.mean(known)),
        bound=None,
        source="point 8: counts are live",
        beside="1 if each transaction has one cluster",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
def test_the_count_of_suppressed_records_names_the_record_that_was_due(data_dir: Path, rule: str) -> None:
    delta, count = 30, 1000
    people = zipf_people(count, 60, 1.5)
    policy = policy_of(AGES, 10, delta=delta, rule=rule)
    release = released(policy, tagged(adult(data_dir, count), people), step=1, scraped=True)
    suppressed = np.diff(series(release, "shoal_records_total", "('outcome', 'suppressed')"), prepend=0)
    gone = set(release.suppressed)
    hits, found = [], []
    for last in np.flatnonzero(suppressed[: count - 1]).tolist():
        # The oldest record is decided when delta later ones have arrived: it is the first to be named.
        hits.append(float(last - delta in gone))
        found.append(suppressed[last])
    assert sum(found) > 20
    measured(
        "R32",
        f"record that was suppressed, named by the count of suppressed records, k = 10, delta {delta}, a scrape after "
        "each record",
        knows="every scrape, and not the output",
        success=float(np.mean(hits)),
        error=standard_error(hits),
        bound=None,
        source="point 8: counts are live",
        beside=f"{int(sum(found))} suppressed in {len(hits)} steps",
        rule=rule,
    )
