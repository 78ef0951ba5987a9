"""Who is in a cluster, how much of it he owns, and what happens to those who find no cluster."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle.naive_release import K, broken, make_release
from shoal.cli import main
from support.attack_results import RULES, impossible, measured
from support.attacking import AGES, Release, adult, column, policy_of, quasi, released, tagged, zipf_people
from support.by_night import at_night


def shares(release: Release) -> list[float]:
    """Of each cluster, the part that its heaviest subject owns."""
    return [max(release.people(cluster).values()) / len(cluster.offsets) for cluster in release.clusters]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("cap", [0.5, 0.2])
@pytest.mark.parametrize("exponent", [1.2, *at_night(0.8, 1.0, 1.5)])
def test_no_subject_exceeds_max_share(data_dir: Path, exponent: float, cap: float, rule: str) -> None:
    k, count = 10, 20_000
    people = zipf_people(count, 2000, exponent)
    release = released(policy_of(AGES, k, max_share=cap, rule=rule), tagged(adult(data_dir, count), people))
    worst = max(shares(release))
    assert min(len(release.people(cluster)) for cluster in release.clusters) >= k
    assert sum(len(cluster.offsets) for cluster in release.clusters) + len(release.suppressed) == count
    measured(
        "R24",
        f"largest share of one subject, subjects by Zipf {exponent}, k = {k}, max_share {cap}",
        knows="every record of the heaviest subject",
        success=worst,
        bound=cap,
        source="max_share",
        beside=f"on average {np.mean(shares(release)):.2f}; suppressed {len(release.suppressed) / count:.2%}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
def test_a_company_in_its_own_table_owns_no_more_than_the_cap(data_dir: Path, rule: str) -> None:
    rows = column(data_dir, "eia", "UTILITYID", "RESREVENUE", "RESSALES")
    people = [int(row.pop("UTILITYID")) for row in rows]
    fields = {name: quasi(0, max(row[name] for row in rows)) for name in ("RESREVENUE", "RESSALES")}
    release = released(policy_of(fields, 10, rule=rule), tagged(rows, people))
    measured(
        "R24",
        "largest share of one utility in EIA, k = 10",
        knows="every record of the utility",
        success=max(shares(release)),
        bound=0.5,
        source="max_share, by default 0.5",
        beside=f"suppressed {len(release.suppressed) / len(rows):.2%}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
def test_each_cluster_is_released_once_and_as_a_whole(data_dir: Path, rule: str) -> None:
    k = 5
    people = zipf_people(6000, 600, 0.8)
    release = released(policy_of(AGES, k, rule=rule), tagged(adult(data_dir, 6000), people), step=10)
    numbers = [cluster.number for cluster in release.clusters]
    assert sorted(numbers) == list(range(len(numbers)))
    entries = [json.loads(line) for one in release.transactions for line in one.topics.get("proof", [])]
    assert Counter(one["cluster"] for one in entries) == Counter(numbers)
    # Centroids of small numbers do come again; each time k people of that transaction stand behind them.
    centroids = Counter(cluster.centroid for cluster in release.clusters)
    assert max(centroids.values()) > 1
    assert all(len(release.people(cluster)) >= k for cluster in release.clusters)
    offsets = [offset for cluster in release.clusters for offset in cluster.offsets]
    assert len(offsets) == len(set(offsets))
    for one in release.transactions:
        left = [row for cluster in one.clusters for row in cluster.rows]
        assert left == one.topics.get("out", [])
        assert sum(len(cluster.offsets) for cluster in one.clusters) == len(left)
    impossible(
        "R6", "by default a cluster leaves in one transaction, whole: borders of transactions tell of clusters only"
    )
    impossible(
        "R28",
        "by default a cluster has all its members when it leaves; equal centroids later have k people of their own",
    )


def test_the_judge_does_not_add_up_two_small_clusters_with_equal_centroids(tmp_path: Path) -> None:
    world = make_release(tmp_path)
    first, second = world.clusters[0][: K // 2], world.clusters[0][K // 2 :]
    for index in world.clusters[0]:
        world.records[index] |= {"age": 40, "income": 1000.0, "dose": 0.5}
    world.clusters = [first, *world.clusters[1:], second]
    world.regenerate()
    verdict = world.verify()
    assert verdict.exit_code == 1
    assert broken(verdict)
    impossible("R27", "the judge counts people per cluster as it was released, not per published value")


@pytest.mark.parametrize("rule", RULES)
def test_only_records_among_fewer_than_k_people_are_suppressed_and_stay_so(data_dir: Path, rule: str) -> None:
    k, delta = 10, 30
    count = 3000
    people = zipf_people(count, 60, 1.5)
    release = released(policy_of(AGES, k, delta=delta, rule=rule), tagged(adult(data_dir, count), people), step=1)
    gone = release.suppressed
    left_at = {
        offset: one.newest for one in release.transactions for cluster in one.clusters for offset in cluster.offsets
    }
    left_at |= {reference.offset: one.newest for one in release.transactions for reference in one.references}
    assert len(gone) > 20
    at_end = {offset for offset in gone if left_at[offset] == count - 1}
    # At the end clusters are released first, one after another; what is suppressed is then all that is left.
    assert len({people[offset] for offset in at_end}) < k
    for offset in set(gone) - at_end:
        then = left_at[offset]
        around = {people[other] for other in range(max(0, then - delta), then + 1) if left_at[other] >= then}
        assert len(around) < k
    assert not set(gone) & {offset for cluster in release.clusters for offset in cluster.offsets}
    entries = [json.loads(line) for one in release.transactions for line in one.topics.get("bad", [])]
    assert {tuple(one) for one in entries} == {("topic", "partition", "offset", "reason")}
    assert {one["reason"] for one in entries} == {"suppressed"}
    impossible(
        "R32", "a suppressed record is never released, and no cluster ever has fewer than k people because of one"
    )


STREAM: dict[str, Any] = {"privacy": {"k": 3}, "stream": {"delta": 20}}
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "R20 R21": (
        STREAM
        | {"attributes": {"age": quasi(0, 110), "ill": {"role": "confidential"}}, "subject": "every_record"}
        | {"privacy": {"k": 3, "t": 0.2}},
        "attributes.ill.reference",
        "privacy.t of a stream is refused without a reference",
    ),
    "R26": (
        STREAM | {"attributes": {"age": quasi(0, 110)}},
        "subject",
        "a policy names the subject or says that every record is one",
    ),
    "R22": (
        STREAM
        | {"attributes": {"age": quasi(0, 110), "ward": {"role": "other", "type": "string"}}}
        | {"subject": "every_record"},
        "attributes.ward.publish_unchanged",
        "a field is published unchanged only where the policy says publish_unchanged",
    ),
}
"""By attack: a policy, what its refusal names, and how that prevents the attack."""


@pytest.mark.parametrize("attacks", REFUSED)
def test_a_policy_that_allows_the_attack_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], attacks: str
) -> None:
    document, named, how = REFUSED[attacks]
    path = tmp_path / "policy.yaml"
    path.write_text(json.dumps(document))
    assert main(["check", str(path)]) == 2
    assert named in capsys.readouterr().err
    if "t" in document["privacy"]:  # a table is compared with itself
        path.write_text(json.dumps({name: section for name, section in document.items() if name != "stream"}))
        assert main(["check", str(path)]) == 0
    for attack in attacks.split():
        impossible(attack, how)


SPELLINGS = (
    "Zoë Weiss {}",
    "zoë WEISS {}",
    "Zoë  Weiss {}",
    "Zoë\u00a0Weiss {}",
    "Zoë We\u200biss {}",
    "Zoë Wei\u00adss {}",
    "\uff3a\uff4f\u00eb Weiss {}",
    "\u2066Zoe\u0308 Wei\u00df {}\u2069",
)
"""Of one name, beyond what NFC and trimming bring together."""
THREE = ("é{}", " é{} ", "e\u0301{}\u00a0")
EVERY_STEP = ["nfkc", "casefold", "spaces", "invisible"]


@pytest.mark.parametrize(
    ("spellings", "steps", "rule", "bound", "how"),
    [
        *((THREE, [], rule, 0.0, "under three spellings") for rule in RULES),
        (SPELLINGS, [], "auto", None, "under eight spellings, default"),
        (SPELLINGS, EVERY_STEP, "auto", 0.0, "under eight spellings, every step of normalize"),
    ],
)
def test_people_are_told_apart_as_the_policy_says(
    data_dir: Path, spellings: tuple[str, ...], steps: list[str], rule: str, bound: float | None, how: str
) -> None:
    """By default a person under three spellings counts once, and under eight ones as eight people."""
    k, count = 5, 3000
    random = np.random.default_rng(8)
    people = [int(one) for one in random.integers(0, 300, count)]
    records = tagged(adult(data_dir, count), people)
    written = [
        record | {"who": spellings[spelling].format(record["who"])}
        for record, spelling in zip(records, random.integers(len(spellings), size=count), strict=True)
    ]
    assert len({record["who"] for record in written}) > 2 * len(set(people))
    release = released(policy_of(AGES, k, rule=rule, normalize=steps), written)
    sizes = [len({people[offset] for offset in cluster.offsets}) for cluster in release.clusters]
    small = float(np.mean([size < k for size in sizes]))
    assert (small > 0) == (bound is None)
    measured(
        "R26",
        f"clusters with fewer than {k} people, each person {how}",
        knows="the spellings",
        success=small,
        bound=bound,
        source="point 1: people as the policy tells them apart"
        if bound is None
        else "normalize"
        if steps
        else "spellings of one person are one person",
    )


def test_copies_of_one_record_are_released_where_every_record_is_a_person(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    found = {}
    for subject in ({"subject": "every_record"}, {}):
        who = {} if subject else {"who": {"role": "identifier", "subject": True}}
        document = {"attributes": who | {"age": quasi(0, 110, integer=True)}, "privacy": {"k": 5}} | subject
        (tmp_path / "policy.yaml").write_text(json.dumps(document | {"stream": {"delta": 20}}))
        source.write_text((json.dumps({"age": 83} if subject else {"who": "ann", "age": 83}) + "\n") * 5)
        main(["pipe", str(tmp_path / "policy.yaml"), "-i", str(source), "-o", str(out)])
        found[bool(subject)] = out.read_text().splitlines()
    assert found == {True: ['{"age":83}'] * 5, False: []}
    measured(
        "R26",
        "own value of a person published, from k copies of the person's only record, subject: every_record",
        knows="that the record was sent k times",
        success=1.0,
        source="point 7: producers are idempotent",
        beside="with a declared subject 0.000",
    )
