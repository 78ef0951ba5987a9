"""Tampered releases: each manipulation of a correct release must break the check that is meant for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from oracle.naive_release import K, NaiveRelease, broken, centroid, make_records, make_release, row_text

Tampering = Callable[[NaiveRelease], object]


def shown(naive: NaiveRelease, members: list[int]) -> dict[str, str]:
    return {name: centroid(naive.records, members, name) for name in ("age", "income", "dose")}


def too_few_subjects(naive: NaiveRelease) -> None:
    # The cluster keeps its size and loses subjects until there are k - 1.
    first = naive.clusters[0]
    naive.records[first[1]]["patient"] = naive.records[first[0]]["patient"]
    while len({naive.records[index]["patient"] for index in first}) > K - 1:
        naive.records[first[-1]]["patient"] = naive.records[first[0]]["patient"]
        first = first[:-1]
    naive.regenerate()


def share_above_cap(naive: NaiveRelease) -> None:
    members = naive.clusters[0] + naive.clusters[1]
    for index in members[K - 1 :]:
        naive.records[index]["patient"] = "dominant"
    naive.clusters = [members, *naive.clusters[2:]]
    naive.regenerate()


def in_two_clusters(naive: NaiveRelease) -> None:
    naive.clusters[1].append(naive.clusters[0][0])
    naive.regenerate()


def centroid_of_another(naive: NaiveRelease) -> None:
    one, two = naive.clusters[0], naive.clusters[1]
    naive.rows[0] = sorted(row_text(naive.records[index], shown(naive, two)) for index in one)


def two_clusters_mixed(naive: NaiveRelease) -> None:
    naive.rows[0][-1], naive.rows[1][0] = naive.rows[1][0], naive.rows[0][-1]


def unusable_record(naive: NaiveRelease) -> None:
    naive.records[naive.clusters[0][0]]["dose"] = "0.5"
    # The row is changed as an engine without type checks would publish it.
    naive.rows[0][0] = naive.rows[0][0].replace("é", "e")


STRANGER = row_text(make_records(1, seed=99)[0], {"age": "30", "income": "1000", "dose": "0.50"})
TAMPERINGS: dict[str, tuple[Tampering, set[str]]] = {
    "too few subjects": (too_few_subjects, {"subjects"}),
    "a share above the cap": (share_above_cap, {"share"}),
    "one record in two clusters": (in_two_clusters, {"once"}),
    "the centroid of another cluster": (centroid_of_another, {"nothing_else"}),
    "a row twice": (lambda naive: naive.rows[0].insert(0, naive.rows[0][0]), {"nothing_else"}),
    "a row missing": (lambda naive: naive.rows[0].pop(0), {"nothing_missing"}),
    "a row without a record": (lambda naive: naive.rows[-1].append(STRANGER), {"nothing_else"}),
    "two clusters mixed": (two_clusters_mixed, {"together"}),
    "an unusable record": (unusable_record, {"existing"}),
}
"""Rows of which each can be traced to its record without evidence; docs/reports/judge.md has many more."""


@pytest.mark.parametrize("evidence", [True, False])
@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_tampered_release_breaks_the_check_and_is_broken_without_evidence(
    tmp_path: Path, name: str, *, evidence: bool
) -> None:
    tamper, checks = TAMPERINGS[name]
    naive = make_release(tmp_path)
    assert naive.verify(evidence=evidence).exit_code == 0
    tamper(naive)
    verdict = naive.verify(evidence=evidence)
    assert verdict.exit_code == 1
    assert not evidence or checks <= broken(verdict)


@pytest.mark.parametrize("offset", [10_000, -1, "released", "twice"])
def test_a_reference_must_name_an_unreleased_record_once(tmp_path: Path, offset: int | str) -> None:
    """Five records of fewer than k subjects are left, and listed as suppressed."""
    left = [{**record, "patient": "left", "diagnosis": f"left {n}"} for n, record in enumerate(make_records(5, seed=1))]
    naive = NaiveRelease(tmp_path, [*make_records(60), *left], make_release(tmp_path).clusters)
    known: dict[int | str, int] = {"released": naive.clusters[0][0], "twice": 60}
    path = tmp_path / "quarantine.jsonl"
    for offsets, checks in ((range(60, 65), set()), ([*range(60, 65), known.get(offset, offset)], {"references"})):
        lines = [{"topic": "t", "partition": 0, "offset": one, "reason": "suppressed"} for one in offsets]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert broken(naive.verify(quarantine=path)) == checks
