"""Tampered releases: each manipulation of a correct release must break the check that is meant for it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from oracle.naive_release import (
    POLICY,
    K,
    NaiveRelease,
    broken,
    centroid,
    load_policy,
    make_records,
    make_release,
    row_text,
)
from shoal.audit import Verdict, verify
from shoal.errors import InputError

Tampering = Callable[[NaiveRelease], object]


def shown(naive: NaiveRelease, members: list[int]) -> dict[str, str]:
    return {name: centroid(naive.records, members, name) for name in ("age", "income", "dose")}


# ---------------------------------------------------------------- clusters


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


def equal_centroids_in_two_halves(naive: NaiveRelease) -> None:
    halves = naive.clusters[0][:3], naive.clusters[0][3:]
    for index in naive.clusters[0]:
        naive.records[index] |= {"age": 40, "income": 1000.0, "dose": 0.5}
    naive.clusters = [halves[0], *naive.clusters[1:], halves[1]]
    naive.regenerate()


def centroid_of_another(naive: NaiveRelease) -> None:
    one, two = naive.clusters[0], naive.clusters[1]
    naive.rows[0] = sorted(row_text(naive.records[index], shown(naive, two)) for index in one)


# ---------------------------------------------------------------- rows


def publish(naive: NaiveRelease, field: str, value: str) -> None:
    """Publish another value of a field in all rows of the first cluster."""
    naive.rows[0] = [re.sub(rf'"{field}":[^,]*', f'"{field}":{value}', text) for text in naive.rows[0]]


def ward_of_another_type(naive: NaiveRelease) -> None:
    naive.records[naive.clusters[0][0]]["ward"] = "1"
    naive.regenerate()
    naive.rows[0] = [text.replace('"ward":"1"', '"ward":1') for text in naive.rows[0]]


def extra_field(naive: NaiveRelease) -> None:
    naive.rows[0][0] = naive.rows[0][0][:-1] + ',"seen_at":7}'


def one_grid_step(naive: NaiveRelease) -> None:
    step = int(shown(naive, naive.clusters[0])["income"]) + 500
    publish(naive, "income", str(step))


def unrounded_mean(naive: NaiveRelease) -> None:
    members = naive.clusters[0]
    exact = sum(min(max(naive.records[index]["income"], 0), 100000) for index in members) / len(members) + 0.125
    publish(naive, "income", repr(exact))


def swapped_confidential(naive: NaiveRelease) -> None:
    one, two = naive.clusters[0][0], naive.clusters[1][0]
    texts = ["\n".join(rows) for rows in naive.rows]
    a, b = (json.dumps(naive.records[index]["diagnosis"], ensure_ascii=False) for index in (one, two))
    texts[0], texts[1] = texts[0].replace(a, b), texts[1].replace(b, a)
    naive.rows = [sorted(text.split("\n"), key=str.encode) for text in texts]


def order_of_arrival(naive: NaiveRelease) -> None:
    for number, index in enumerate(sorted(naive.clusters[0])):
        naive.records[index]["diagnosis"] = f"d{9 - number}"
    naive.regenerate()
    naive.rows[0].reverse()


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
    "equal centroids in two halves": (equal_centroids_in_two_halves, {"subjects"}),
    "the centroid of another cluster": (centroid_of_another, {"nothing_else"}),
    "a row twice": (lambda naive: naive.rows[0].insert(0, naive.rows[0][0]), {"nothing_else"}),
    "a row missing": (lambda naive: naive.rows[0].pop(0), {"nothing_missing"}),
    "a row without a record": (lambda naive: naive.rows[-1].append(STRANGER), {"nothing_else"}),
    "one step of the grid": (one_grid_step, {"nothing_else"}),
    "swapped confidential values": (swapped_confidential, {"nothing_else"}),
    "a ward of another type": (ward_of_another_type, {"nothing_else"}),
    "an extra field": (extra_field, {"columns", "hidden"}),
    "a mean that is not rounded": (unrounded_mean, {"grid", "nothing_else"}),
    "the order of arrival": (order_of_arrival, {"byte_order"}),
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


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[0]",
        "[" * 100_000,
        '{"partition":0,"cluster":0}',
        '{"partition":0,"cluster":0,"offsets":{"a":1}}',
        '{"partition":0,"cluster":null,"offsets":[1]}',
        '{"partition":0,"partition":0,"cluster":0,"offsets":[1]}',
    ],
)
def test_evidence_of_another_shape_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    naive = make_release(tmp_path)
    naive.evidence.insert(1, line)
    with pytest.raises(InputError, match=r"evidence\.jsonl, line 2: .*; write the evidence again") as error:
        naive.verify()
    assert error.value.exit_code == 2


ACCOUNTS: list[tuple[str, object]] = [
    ("records_in", 61),
    ("released", 59),
    ("suppressed", {"suppressed": 1}),
    ("quarantined", {"invalid": 1}),
    ("held", 1),
    ("clusters", 10),
    ("cluster_size", {"min": 4}),
    ("cluster_size", {"max": 99}),
    ("cluster_size", {"mean": 5.5}),
    ("subjects", {"min": 6}),
    ("share", {"max": 0.1}),
]


@pytest.mark.parametrize(("field", "value"), ACCOUNTS)
def test_a_summary_that_does_not_agree_is_broken(tmp_path: Path, field: str, value: object) -> None:
    naive = make_release(tmp_path)
    assert naive.verify(summary=True)["accounts"].status == "holds"
    naive.summary[field] = value
    verdict = naive.verify(summary=True)
    assert verdict.exit_code == 1
    assert broken(verdict) == {"accounts"}


# ---------------------------------------------------------------- exports of topics


def export(naive: NaiveRelease, *, raw: bool) -> dict[str, Path]:
    """Export the records to two partitions, each cluster in one of them, with gaps between offsets."""
    paths = naive.write()
    place: dict[int, tuple[int, int]] = {}
    for number, members in enumerate(naive.clusters):
        place |= {index: (number % 2, 100 + 3 * index) for index in members}
    lines = [
        {"partition": place[index][0], "offset": place[index][1], "value": json.dumps(record) if raw else record}
        for index, record in enumerate(naive.records)
    ]
    evidence = [
        {"partition": number % 2, "cluster": number // 2, "offsets": [place[index][1] for index in members]}
        for number, members in enumerate(naive.clusters)
    ]
    # The clusters of a transaction are in byte order, not in that of the evidence.
    order = sorted(range(len(naive.rows)), key=lambda number: naive.rows[number][0].encode())
    released = [{"partition": number % 2, "value": row} for number in order for row in naive.rows[number]]
    for name, content in (("original", lines), ("evidence", evidence), ("released", released)):
        paths[name].write_text("".join(json.dumps(line) + "\n" for line in content), encoding="utf-8")
    return paths


def judged(paths: dict[str, Path], *, evidence: bool = True) -> Verdict:
    policy = load_policy(paths["original"].parent, POLICY)
    return verify(policy, paths["original"], paths["released"], paths["evidence"] if evidence else None)


@pytest.mark.parametrize("raw", [True, False])
def test_exports_of_topics_are_checked_per_partition(tmp_path: Path, *, raw: bool) -> None:
    naive = make_release(tmp_path)
    paths = export(naive, raw=raw)
    verdict = judged(paths)
    assert verdict.exit_code == 0, verdict.text()
    assert verdict["together"].examined == len(naive.clusters)
    assert judged(paths, evidence=False).exit_code == 0


EXPORTS: dict[str, tuple[Callable[[list[str]], list[str]], set[str]]] = {
    "rows of a cluster that are not adjacent": (lambda lines: [*lines[1:], lines[0]], {"together"}),
    "rows out of byte order": (lambda lines: [lines[1], lines[0], *lines[2:]], {"byte_order"}),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_a_tampered_export_of_a_topic_breaks_the_check(tmp_path: Path, name: str) -> None:
    change, checks = EXPORTS[name]
    paths = export(make_release(tmp_path), raw=True)
    lines = change(paths["released"].read_text().splitlines())
    paths["released"].write_text("".join(f"{line}\n" for line in lines))
    assert checks <= broken(judged(paths))


def test_a_cluster_is_named_with_its_partition(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    paths = export(naive, raw=True)
    lines = [json.loads(line) for line in paths["released"].read_text().splitlines()]
    kept = [line for line in lines if line["value"] not in naive.rows[3]]
    paths["released"].write_text("".join(json.dumps(line) + "\n" for line in kept))
    assert judged(paths)["nothing_missing"].places == ("1/1",)


# ---------------------------------------------------------------- quarantine


def quarantined(tmp_path: Path) -> tuple[NaiveRelease, list[dict[str, object]]]:
    """Return a release after which five records of fewer than k subjects are left."""
    left = [{**record, "patient": "left", "diagnosis": f"left {n}"} for n, record in enumerate(make_records(5, seed=1))]
    naive = NaiveRelease(tmp_path, [*make_records(60), *left], make_release(tmp_path).clusters)
    return naive, [{"topic": "t", "partition": 0, "offset": index, "reason": "suppressed"} for index in range(60, 65)]


def broken_with(naive: NaiveRelease, references: list[dict[str, object]], *, partial: bool = False) -> set[str]:
    path = naive.folder / "quarantine.jsonl"
    path.write_text("".join(json.dumps(reference) + "\n" for reference in references))
    return broken(naive.verify(quarantine=path, partial=partial))


def test_every_record_is_released_or_referenced_except_in_a_part(tmp_path: Path) -> None:
    naive, references = quarantined(tmp_path)
    assert broken_with(naive, references) == set()
    assert broken_with(naive, references[1:]) == {"complete"}
    assert broken_with(naive, references[1:], partial=True) == set()


def test_without_references_a_release_has_every_record_that_could_be_released(tmp_path: Path) -> None:
    naive, _ = quarantined(tmp_path)
    assert naive.verify().exit_code == 0
    del naive.clusters[0]
    naive.regenerate()
    assert broken(naive.verify()) == {"complete"}
    assert make_release(tmp_path).verify().exit_code == 0


def test_references_are_not_examined_if_clusters_are_unknown(tmp_path: Path) -> None:
    naive, references = quarantined(tmp_path)
    for record in naive.records:
        record |= {"diagnosis": "flu", "ward": None}
    naive.regenerate()
    path = tmp_path / "quarantine.jsonl"
    for lines, status in ((references, "not examined"), (references * 2, "broken")):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        verdict = naive.verify(evidence=False, quarantine=path)
        assert verdict["references"].status == status
        assert verdict["complete"].status == "not examined"


@pytest.mark.parametrize("offset", [10_000, -1, "released", "twice"])
def test_a_reference_must_name_an_unreleased_record_once(tmp_path: Path, offset: int | str) -> None:
    naive, references = quarantined(tmp_path)
    known: dict[int | str, object] = {"released": naive.clusters[0][0], "twice": references[0]["offset"]}
    assert broken_with(naive, [*references, {**references[0], "offset": known.get(offset, offset)}]) == {"references"}


# ---------------------------------------------------------------- subjects


@pytest.mark.parametrize(
    "spellings",
    [[7, 7.0, "7", "7 ", "007"], ["é", "e\u0301", " é", "é\t", "\u00a0é"], [True, "true", " true", "true ", "true\n"]],
)
def test_all_spellings_of_a_subject_count_once(tmp_path: Path, spellings: list[object]) -> None:
    records = [{**record, "patient": name} for record, name in zip(make_records(K), spellings, strict=True)]
    naive = NaiveRelease(tmp_path, records, [list(range(K))])
    verdict = naive.verify()
    assert verdict["subjects"].worst == 1
    assert {"subjects", "share"} <= broken(verdict)


def test_leading_zeros_make_different_subjects_of_type_string(tmp_path: Path) -> None:
    records = [{**record, "patient": "0" * number + "7"} for number, record in enumerate(make_records(K))]
    text = POLICY.replace("subject: true", "subject: true, type: string")
    naive = NaiveRelease(tmp_path, records, [list(range(K))], policy=text)
    assert naive.verify().exit_code == 0


# ---------------------------------------------------------------- what is printed


@pytest.mark.parametrize("name", ["original", "released", "evidence", "summary"])
def test_an_error_about_a_malformed_file_contains_no_value(tmp_path: Path, name: str) -> None:
    paths = make_release(tmp_path).write()
    paths[name].write_bytes(b'{"CANARY": CANARY\xff')
    policy, files = load_policy(tmp_path, POLICY), (paths["original"], paths["released"], paths["evidence"])
    try:
        verdict = verify(policy, *files, paths["summary"])
    except InputError as error:
        assert error.__cause__ is None  # noqa: PT017 - the file may be refused or verified
        said = str(error)
    else:
        assert verdict.exit_code == 1
        said = verdict.text()
    assert "CANARY" not in said
