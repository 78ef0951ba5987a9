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
    group,
    make_records,
    make_release,
    row_text,
)
from shoal.audit import verify
from shoal.errors import InputError
from shoal.policy import Policy

Tampering = Callable[[NaiveRelease], None]


def shown(naive: NaiveRelease, members: list[int]) -> dict[str, str]:
    return {name: centroid(naive.records, members, name) for name in ("age", "income", "dose")}


def change(naive: NaiveRelease, field: str, value: str, *, cluster: int = 0) -> None:
    """Publish another value of a field in all rows of a cluster."""
    naive.rows[cluster] = [re.sub(rf'"{field}":[^,]*', f'"{field}":{value}', text) for text in naive.rows[cluster]]


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


def one_record_in_two_clusters(naive: NaiveRelease) -> None:
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


def row_twice(naive: NaiveRelease) -> None:
    naive.rows[0].insert(0, naive.rows[0][0])


def row_missing(naive: NaiveRelease) -> None:
    del naive.rows[0][0]


def row_without_record(naive: NaiveRelease) -> None:
    naive.rows[-1].append(row_text(make_records(1, seed=99)[0], {"age": "30", "income": "1000", "dose": "0.50"}))


def cluster_missing(naive: NaiveRelease) -> None:
    del naive.rows[2]


def cluster_missing_in_the_evidence(naive: NaiveRelease) -> None:
    del naive.evidence[2]


def one_grid_step(naive: NaiveRelease) -> None:
    step = int(shown(naive, naive.clusters[0])["income"]) + 500
    change(naive, "income", str(step))


def swapped_confidential(naive: NaiveRelease) -> None:
    one, two = naive.clusters[0][0], naive.clusters[1][0]
    texts = ["\n".join(rows) for rows in naive.rows]
    a, b = (json.dumps(naive.records[index]["diagnosis"], ensure_ascii=False) for index in (one, two))
    texts[0], texts[1] = texts[0].replace(a, b), texts[1].replace(b, a)
    naive.rows = [sorted(text.split("\n"), key=str.encode) for text in texts]


def value_of_another_type(naive: NaiveRelease) -> None:
    naive.records[naive.clusters[0][0]]["ward"] = "1"
    naive.regenerate()
    naive.rows[0] = [text.replace('"ward":"1"', '"ward":1') for text in naive.rows[0]]
    naive.records[naive.clusters[0][0]]["ward"] = "1"


def one_instead_of_true(naive: NaiveRelease) -> None:
    naive.records[naive.clusters[0][0]]["ward"] = True
    naive.regenerate()
    naive.rows[0] = [text.replace('"ward":true', '"ward":1') for text in naive.rows[0]]


# ---------------------------------------------------------------- columns, canonical form, order


def extra_field(naive: NaiveRelease) -> None:
    naive.rows[0][0] = naive.rows[0][0][:-1] + ',"seen_at":7}'


def identifier_in_output(naive: NaiveRelease) -> None:
    naive.rows[0][0] = naive.rows[0][0][:-1] + ',"patient":"p1"}'


def identifier_instead_of_ward(naive: NaiveRelease) -> None:
    naive.rows[0][0] = naive.rows[0][0].split(',"ward"')[0] + ',"patient":"p1"}'


def wrong_field_order(naive: NaiveRelease) -> None:
    naive.rows[0][0] = re.sub(r'("age":[^,]*),("income":[^,]*)', r"\2,\1", naive.rows[0][0])


def doubled_key(naive: NaiveRelease) -> None:
    naive.rows[0][0] = naive.rows[0][0][:-1] + ',"age":7}'


def white_space(naive: NaiveRelease) -> None:
    naive.rows[0][0] = naive.rows[0][0].replace(',"age":', ', "age":')


def carriage_return(naive: NaiveRelease) -> None:
    naive.rows[0][0] += "\r"


def needless_escape(naive: NaiveRelease) -> None:
    naive.rows[0][0] = naive.rows[0][0].replace("é", "\\u00e9")


def respelled_number(naive: NaiveRelease) -> None:
    naive.records[naive.clusters[0][0]]["ward"] = 100.0
    naive.regenerate()
    naive.rows[0] = [text.replace('"ward":100.0', '"ward":1e2') for text in naive.rows[0]]


def not_a_number(naive: NaiveRelease) -> None:
    change(naive, "age", '"41"')


def null_instead_of_a_number(naive: NaiveRelease) -> None:
    change(naive, "age", "null")


def unrounded_mean(naive: NaiveRelease) -> None:
    members = naive.clusters[0]
    exact = sum(min(max(naive.records[index]["income"], 0), 100000) for index in members) / len(members) + 0.125
    change(naive, "income", repr(exact))


def missing_decimals(naive: NaiveRelease) -> None:
    for index in naive.clusters[0]:
        naive.records[index]["dose"] = 0.5
    naive.regenerate()
    change(naive, "dose", "0.5")


def out_of_bounds(naive: NaiveRelease) -> None:
    change(naive, "age", "111")


def minus_zero(naive: NaiveRelease) -> None:
    for index in naive.clusters[0]:
        naive.records[index]["dose"] = 0.0
    naive.regenerate()
    change(naive, "dose", "-0.00")


def control_character(naive: NaiveRelease) -> None:
    naive.rows[0][0] = "\x00"


def blank_row(naive: NaiveRelease) -> None:
    naive.rows[0].insert(0, "")


def order_of_arrival(naive: NaiveRelease) -> None:
    members = naive.clusters[0]
    for number, index in enumerate(sorted(members)):
        naive.records[index]["diagnosis"] = f"d{9 - number}"
    naive.regenerate()
    naive.rows[0].reverse()


def two_clusters_mixed(naive: NaiveRelease) -> None:
    naive.rows[0][-1], naive.rows[1][0] = naive.rows[1][0], naive.rows[0][-1]


def clusters_in_reverse_order(naive: NaiveRelease) -> None:
    naive.rows.reverse()


# ---------------------------------------------------------------- evidence


def offset_out_of_range(naive: NaiveRelease) -> None:
    naive.evidence[0]["offsets"].append(10_000)


def negative_offset(naive: NaiveRelease) -> None:
    naive.evidence[0]["offsets"].append(-1)


def offset_twice(naive: NaiveRelease) -> None:
    naive.evidence[0]["offsets"].append(naive.evidence[0]["offsets"][0])


def offset_twice_and_published_twice(naive: NaiveRelease) -> None:
    naive.clusters[0].append(naive.clusters[0][0])
    naive.regenerate()


def foreign_partition(naive: NaiveRelease) -> None:
    naive.evidence[0]["partition"] = 1


def cluster_without_members(naive: NaiveRelease) -> None:
    naive.evidence.append({"partition": 0, "cluster": 99, "offsets": []})


def cluster_named_twice(naive: NaiveRelease) -> None:
    naive.evidence.append(naive.evidence[0])


def no_evidence_lines(naive: NaiveRelease) -> None:
    naive.evidence = []


def no_rows(naive: NaiveRelease) -> None:
    naive.rows = []


def unusable_record(naive: NaiveRelease) -> None:
    naive.records[naive.clusters[0][0]]["dose"] = "0.5"
    # The row is changed as an engine without type checks would publish it.
    naive.rows[0][0] = naive.rows[0][0].replace("é", "e")


TAMPERINGS: list[tuple[Tampering, str]] = [
    (too_few_subjects, "subjects"),
    (share_above_cap, "share"),
    (one_record_in_two_clusters, "once"),
    (equal_centroids_in_two_halves, "subjects"),
    (centroid_of_another, "nothing_else"),
    (row_twice, "nothing_else"),
    (row_missing, "nothing_missing"),
    (row_without_record, "nothing_else"),
    (cluster_missing, "nothing_missing"),
    (cluster_missing_in_the_evidence, "nothing_else"),
    (one_grid_step, "nothing_else"),
    (swapped_confidential, "nothing_else"),
    (value_of_another_type, "nothing_else"),
    (one_instead_of_true, "nothing_else"),
    (extra_field, "columns"),
    (extra_field, "hidden"),
    (identifier_in_output, "hidden"),
    (identifier_instead_of_ward, "hidden"),
    (identifier_instead_of_ward, "columns"),
    (wrong_field_order, "columns"),
    (doubled_key, "columns"),
    (white_space, "spelling"),
    (carriage_return, "spelling"),
    (needless_escape, "spelling"),
    (respelled_number, "spelling"),
    (not_a_number, "grid"),
    (null_instead_of_a_number, "grid"),
    (unrounded_mean, "grid"),
    (unrounded_mean, "nothing_else"),
    (missing_decimals, "grid"),
    (minus_zero, "grid"),
    (out_of_bounds, "bounds"),
    (control_character, "columns"),
    (blank_row, "columns"),
    (order_of_arrival, "byte_order"),
    (two_clusters_mixed, "together"),
    (clusters_in_reverse_order, "together"),
    (offset_out_of_range, "existing"),
    (negative_offset, "existing"),
    (offset_twice, "once"),
    (offset_twice_and_published_twice, "once"),
    (foreign_partition, "existing"),
    (cluster_without_members, "subjects"),
    (cluster_named_twice, "once"),
    (no_evidence_lines, "nothing_else"),
    (no_rows, "nothing_missing"),
    (unusable_record, "existing"),
]


@pytest.mark.parametrize(
    ("tamper", "check"), TAMPERINGS, ids=[f"{tamper.__name__}-{check}" for tamper, check in TAMPERINGS]
)
def test_a_tampered_release_breaks_the_check(tmp_path: Path, tamper: Tampering, check: str) -> None:
    naive = make_release(tmp_path)
    assert naive.verify().exit_code == 0
    tamper(naive)
    verdict = naive.verify()
    assert verdict.exit_code == 1
    assert check in broken(verdict)


TRACEABLE = [
    too_few_subjects,
    share_above_cap,
    one_record_in_two_clusters,
    equal_centroids_in_two_halves,
    centroid_of_another,
    row_twice,
    row_missing,
    row_without_record,
    one_grid_step,
    swapped_confidential,
    value_of_another_type,
    extra_field,
    unrounded_mean,
    order_of_arrival,
    two_clusters_mixed,
    unusable_record,
]


@pytest.mark.parametrize("tamper", TRACEABLE, ids=lambda tamper: tamper.__name__)
def test_a_tampered_release_is_broken_without_evidence_if_rows_can_be_traced(tmp_path: Path, tamper: Tampering) -> None:
    naive = make_release(tmp_path)
    assert naive.verify(evidence=False).exit_code == 0
    tamper(naive)
    assert naive.verify(evidence=False).exit_code == 1


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[0]",
        '{"partition":0,"cluster":0}',
        '{"partition":0,"cluster":0,"offsets":7}',
        '{"partition":0,"cluster":0,"offsets":{"a":1}}',
        '{"partition":0,"cluster":0,"offsets":["5"]}',
        '{"partition":0,"cluster":0,"offsets":[true]}',
        '{"partition":0,"cluster":0,"offsets":[1.5]}',
        '{"partition":0,"cluster":0,"offsets":[1.0]}',
        '{"partition":"0","cluster":0,"offsets":[1]}',
        '{"partition":0,"cluster":null,"offsets":[1]}',
        '{"partition":0,"partition":0,"cluster":0,"offsets":[1]}',
        '{"partition":0,"cluster":0,"offsets":[1],"income":7}',
        "",
        "[" * 100_000,
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
        {
            "partition": place[index][0],
            "offset": place[index][1],
            "value": json.dumps(record) if raw else record,
        }
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


@pytest.mark.parametrize("raw", [True, False])
def test_exports_of_topics_are_checked_per_partition(tmp_path: Path, *, raw: bool) -> None:
    naive = make_release(tmp_path)
    paths = export(naive, raw=raw)
    policy = Policy.load(_policy(tmp_path))
    verdict = verify(policy, paths["original"], paths["released"], paths["evidence"])
    assert verdict.exit_code == 0, verdict.text()
    assert verdict["together"].examined == len(naive.clusters)
    assert verify(policy, paths["original"], paths["released"]).exit_code == 0


def test_a_row_in_another_partition_does_not_belong_to_its_cluster(tmp_path: Path) -> None:
    paths = export(make_release(tmp_path), raw=True)
    lines = [json.loads(line) for line in paths["released"].read_text().splitlines()]
    lines[0]["partition"] = 1 - lines[0]["partition"]
    paths["released"].write_text("".join(json.dumps(line) + "\n" for line in lines))
    policy = Policy.load(_policy(tmp_path))
    verdict = verify(policy, paths["original"], paths["released"], paths["evidence"])
    assert {"nothing_else", "nothing_missing"} <= broken(verdict)


def test_a_cluster_is_named_with_its_partition(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    paths = export(naive, raw=True)
    lines = [json.loads(line) for line in paths["released"].read_text().splitlines()]
    kept = [line for line in lines if line["value"] not in naive.rows[3]]
    paths["released"].write_text("".join(json.dumps(line) + "\n" for line in kept))
    verdict = verify(Policy.load(_policy(tmp_path)), paths["original"], paths["released"], paths["evidence"])
    assert verdict["nothing_missing"].places == ("1/1",)


def test_rows_of_a_cluster_must_be_adjacent_in_a_topic(tmp_path: Path) -> None:
    paths = export(make_release(tmp_path), raw=True)
    lines = paths["released"].read_text().splitlines()
    paths["released"].write_text("\n".join([*lines[1:], lines[0]]) + "\n")
    policy = Policy.load(_policy(tmp_path))
    assert "together" in broken(verify(policy, paths["original"], paths["released"], paths["evidence"]))


def test_a_topic_out_of_byte_order_is_broken(tmp_path: Path) -> None:
    paths = export(make_release(tmp_path), raw=True)
    lines = paths["released"].read_text().splitlines()
    lines[0], lines[1] = lines[1], lines[0]
    paths["released"].write_text("\n".join(lines) + "\n")
    policy = Policy.load(_policy(tmp_path))
    assert broken(verify(policy, paths["original"], paths["released"], paths["evidence"])) == {"byte_order"}


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


def test_every_record_is_released_or_referenced(tmp_path: Path) -> None:
    naive, references = quarantined(tmp_path)
    assert broken_with(naive, references) == set()


def test_no_record_is_missing_from_a_part(tmp_path: Path) -> None:
    naive, references = quarantined(tmp_path)
    assert broken_with(naive, references[1:], partial=True) == set()


def test_without_references_a_release_has_every_record_that_could_be_released(tmp_path: Path) -> None:
    naive, _ = quarantined(tmp_path)
    assert naive.verify().exit_code == 0
    del naive.clusters[0]
    naive.regenerate()
    assert broken(naive.verify()) == {"complete"}
    assert make_release(tmp_path).verify().exit_code == 0


def test_a_reference_does_not_hide_records_that_could_be_released(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    out = naive.clusters.pop(0)
    naive.regenerate()
    lines: list[dict[str, object]] = [
        {"topic": "t", "partition": 0, "offset": index, "reason": "suppressed"} for index in out
    ]
    assert broken_with(naive, lines) == {"suppressed"}


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


def test_a_record_neither_released_nor_referenced_is_missing(tmp_path: Path) -> None:
    naive, references = quarantined(tmp_path)
    assert broken_with(naive, references[1:]) == {"complete"}


@pytest.mark.parametrize("offset", [10_000, -1, "released", "twice"])
def test_a_reference_must_name_an_unreleased_record_once(tmp_path: Path, offset: int | str) -> None:
    naive, references = quarantined(tmp_path)
    known: dict[int | str, object] = {"released": naive.clusters[0][0], "twice": references[0]["offset"]}
    assert broken_with(naive, [*references, {**references[0], "offset": known.get(offset, offset)}]) == {"references"}


@pytest.mark.parametrize(
    "changed",
    [{"reason": "income too high"}, {"value": 7}, {"reason": None}, {"topic": "income-7"}, {"topic": {"income": 7}}],
)
def test_a_reference_with_another_field_topic_or_reason_is_broken(tmp_path: Path, changed: dict[str, object]) -> None:
    naive, references = quarantined(tmp_path)
    assert broken_with(naive, [*references[1:], references[0] | changed]) == {"reasons"}


# ---------------------------------------------------------------- subjects


@pytest.mark.parametrize(
    "spellings",
    [
        [7, 7.0, "7", "7 ", "007"],
        ["é", "e\u0301", " é", "é\t", "\u00a0é"],
        [True, "true", " true", "true ", "true\n"],
    ],
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


def test_a_verdict_contains_no_value_and_no_subject(tmp_path: Path) -> None:
    records = [
        {**record, "patient": f"CANARY-{i}", "diagnosis": f"CANARY-{i}"} for i, record in enumerate(make_records(60))
    ]
    naive = NaiveRelease(tmp_path, records, group(records))
    for rows in naive.rows:
        rows.append(rows[0][:-1] + ',"CANARY":"CANARY"}')
    naive.original_lines = [json.dumps(record) for record in records] + ['{"CANARY', '{"CANARY": 1}']
    verdict = naive.verify(summary=True)
    assert verdict.exit_code == 1
    assert "CANARY" not in verdict.text()
    assert "CANARY" not in json.dumps(verdict.as_dict())


@pytest.mark.parametrize("name", ["original", "released", "evidence", "summary"])
def test_an_error_about_a_malformed_file_contains_no_value(tmp_path: Path, name: str) -> None:
    naive = make_release(tmp_path)
    paths = naive.write()
    paths[name].write_bytes(b'{"CANARY": CANARY\xff')
    policy = Policy.load(_policy(tmp_path))
    assert "CANARY" not in _printed(policy, paths)


def _printed(policy: Policy, paths: dict[str, Path]) -> str:
    try:
        verdict = verify(policy, paths["original"], paths["released"], paths["evidence"], paths["summary"])
    except InputError as error:
        assert error.__cause__ is None  # noqa: PT017 - the file may be refused or verified
        return str(error)
    assert verdict.exit_code == 1
    return verdict.text()


def _policy(folder: Path) -> Path:
    path = folder / "policy.yaml"
    path.write_text(POLICY)
    return path
