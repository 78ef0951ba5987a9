"""Every cheat that somebody thought of, planted in a sound release: the judge must see each of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from oracle.naive_release import POLICY, K, World, broken, centroid, group, make_records, make_world, row_text
from shoal.audit import verify
from shoal.errors import InputError
from shoal.policy import Policy

pytestmark = pytest.mark.privacy

Cheat = Callable[[World], None]


def shown(world: World, members: list[int]) -> dict[str, str]:
    return {name: centroid(world.records, members, name) for name in ("age", "income", "dose")}


def change(world: World, field: str, value: str, *, cluster: int = 0) -> None:
    """Publish another value of a field in all rows of a cluster."""
    world.rows[cluster] = [re.sub(rf'"{field}":[^,]*', f'"{field}":{value}', text) for text in world.rows[cluster]]


# ---------------------------------------------------------------- clusters that are none


def too_few_subjects(world: World) -> None:
    # Nine records, but one person has half of what makes it k.
    first = world.clusters[0]
    world.records[first[1]]["patient"] = world.records[first[0]]["patient"]
    while len({world.records[index]["patient"] for index in first}) > K - 1:
        world.records[first[-1]]["patient"] = world.records[first[0]]["patient"]
        first = first[:-1]
    world.release()


def share_above_cap(world: World) -> None:
    members = world.clusters[0] + world.clusters[1]
    for index in members[K - 1 :]:
        world.records[index]["patient"] = "greedy"
    world.clusters = [members, *world.clusters[2:]]
    world.release()


def one_record_in_two_clusters(world: World) -> None:
    world.clusters[1].append(world.clusters[0][0])
    world.release()


def equal_centroids_in_two_halves(world: World) -> None:
    halves = world.clusters[0][:3], world.clusters[0][3:]
    for index in world.clusters[0]:
        world.records[index] |= {"age": 40, "income": 1000.0, "dose": 0.5}
    world.clusters = [halves[0], *world.clusters[1:], halves[1]]
    world.release()


def centroid_of_another(world: World) -> None:
    one, two = world.clusters[0], world.clusters[1]
    world.rows[0] = sorted(row_text(world.records[index], shown(world, two)) for index in one)


# ---------------------------------------------------------------- rows that are none


def row_twice(world: World) -> None:
    world.rows[0].insert(0, world.rows[0][0])


def row_missing(world: World) -> None:
    del world.rows[0][0]


def row_of_nobody(world: World) -> None:
    world.rows[-1].append(row_text(make_records(1, seed=99)[0], {"age": "30", "income": "1000", "dose": "0.50"}))


def cluster_missing(world: World) -> None:
    del world.rows[2]


def cluster_unnamed(world: World) -> None:
    del world.evidence[2]


def one_grid_step(world: World) -> None:
    step = int(shown(world, world.clusters[0])["income"]) + 500
    change(world, "income", str(step))


def swapped_confidential(world: World) -> None:
    one, two = world.clusters[0][0], world.clusters[1][0]
    texts = ["\n".join(rows) for rows in world.rows]
    a, b = (json.dumps(world.records[index]["diagnosis"], ensure_ascii=False) for index in (one, two))
    texts[0], texts[1] = texts[0].replace(a, b), texts[1].replace(b, a)
    world.rows = [sorted(text.split("\n"), key=str.encode) for text in texts]


def value_of_another_type(world: World) -> None:
    world.records[world.clusters[0][0]]["ward"] = "1"
    world.release()
    world.rows[0] = [text.replace('"ward":"1"', '"ward":1') for text in world.rows[0]]
    world.records[world.clusters[0][0]]["ward"] = "1"


def truth_for_one(world: World) -> None:
    world.records[world.clusters[0][0]]["ward"] = True
    world.release()
    world.rows[0] = [text.replace('"ward":true', '"ward":1') for text in world.rows[0]]


# ---------------------------------------------------------------- columns, spelling, order


def extra_field(world: World) -> None:
    world.rows[0][0] = world.rows[0][0][:-1] + ',"seen_at":7}'


def identifier_in_output(world: World) -> None:
    world.rows[0][0] = world.rows[0][0][:-1] + ',"patient":"p1"}'


def identifier_instead_of_ward(world: World) -> None:
    world.rows[0][0] = world.rows[0][0].split(',"ward"')[0] + ',"patient":"p1"}'


def wrong_field_order(world: World) -> None:
    world.rows[0][0] = re.sub(r'("age":[^,]*),("income":[^,]*)', r"\2,\1", world.rows[0][0])


def doubled_key(world: World) -> None:
    world.rows[0][0] = world.rows[0][0][:-1] + ',"age":7}'


def white_space(world: World) -> None:
    world.rows[0][0] = world.rows[0][0].replace(',"age":', ', "age":')


def line_end_of_windows(world: World) -> None:
    world.rows[0][0] += "\r"


def needless_escape(world: World) -> None:
    world.rows[0][0] = world.rows[0][0].replace("é", "\\u00e9")


def respelled_number(world: World) -> None:
    world.records[world.clusters[0][0]]["ward"] = 100.0
    world.release()
    world.rows[0] = [text.replace('"ward":100.0', '"ward":1e2') for text in world.rows[0]]


def not_a_number(world: World) -> None:
    change(world, "age", '"41"')


def nothing_for_a_number(world: World) -> None:
    change(world, "age", "null")


def unrounded_mean(world: World) -> None:
    members = world.clusters[0]
    exact = sum(min(max(world.records[index]["income"], 0), 100000) for index in members) / len(members) + 0.125
    change(world, "income", repr(exact))


def missing_decimals(world: World) -> None:
    for index in world.clusters[0]:
        world.records[index]["dose"] = 0.5
    world.release()
    change(world, "dose", "0.5")


def out_of_bounds(world: World) -> None:
    change(world, "age", "111")


def minus_nothing(world: World) -> None:
    for index in world.clusters[0]:
        world.records[index]["dose"] = 0.0
    world.release()
    change(world, "dose", "-0.00")


def garbage(world: World) -> None:
    world.rows[0][0] = "\x00"


def blank_row(world: World) -> None:
    world.rows[0].insert(0, "")


def order_of_arrival(world: World) -> None:
    members = world.clusters[0]
    for number, index in enumerate(sorted(members)):
        world.records[index]["diagnosis"] = f"d{9 - number}"
    world.release()
    world.rows[0].reverse()


def two_clusters_mixed(world: World) -> None:
    world.rows[0][-1], world.rows[1][0] = world.rows[1][0], world.rows[0][-1]


def clusters_out_of_turn(world: World) -> None:
    world.rows.reverse()


# ---------------------------------------------------------------- evidence


def offset_out_of_range(world: World) -> None:
    world.evidence[0]["offsets"].append(10_000)


def negative_offset(world: World) -> None:
    world.evidence[0]["offsets"].append(-1)


def offset_twice(world: World) -> None:
    world.evidence[0]["offsets"].append(world.evidence[0]["offsets"][0])


def offset_twice_and_published_twice(world: World) -> None:
    world.clusters[0].append(world.clusters[0][0])
    world.release()


def foreign_partition(world: World) -> None:
    world.evidence[0]["partition"] = 1


def nobody_at_all(world: World) -> None:
    world.evidence.append({"partition": 0, "cluster": 99, "offsets": []})


def cluster_named_twice(world: World) -> None:
    world.evidence.append(world.evidence[0])


def no_evidence_lines(world: World) -> None:
    world.evidence = []


def no_rows(world: World) -> None:
    world.rows = []


def unusable_record(world: World) -> None:
    world.records[world.clusters[0][0]]["dose"] = "0.5"
    # What a careless engine would have published.
    world.rows[0][0] = world.rows[0][0].replace("é", "e")


CHEATS: list[tuple[Cheat, str]] = [
    (too_few_subjects, "subjects"),
    (share_above_cap, "share"),
    (one_record_in_two_clusters, "once"),
    (equal_centroids_in_two_halves, "subjects"),
    (centroid_of_another, "nothing_else"),
    (row_twice, "nothing_else"),
    (row_missing, "nothing_missing"),
    (row_of_nobody, "nothing_else"),
    (cluster_missing, "nothing_missing"),
    (cluster_unnamed, "nothing_else"),
    (one_grid_step, "nothing_else"),
    (swapped_confidential, "nothing_else"),
    (value_of_another_type, "nothing_else"),
    (truth_for_one, "nothing_else"),
    (extra_field, "columns"),
    (extra_field, "hidden"),
    (identifier_in_output, "hidden"),
    (identifier_instead_of_ward, "hidden"),
    (identifier_instead_of_ward, "columns"),
    (wrong_field_order, "columns"),
    (doubled_key, "columns"),
    (white_space, "spelling"),
    (line_end_of_windows, "spelling"),
    (needless_escape, "spelling"),
    (respelled_number, "spelling"),
    (not_a_number, "grid"),
    (nothing_for_a_number, "grid"),
    (unrounded_mean, "grid"),
    (unrounded_mean, "nothing_else"),
    (missing_decimals, "grid"),
    (minus_nothing, "grid"),
    (out_of_bounds, "bounds"),
    (garbage, "columns"),
    (blank_row, "columns"),
    (order_of_arrival, "byte_order"),
    (two_clusters_mixed, "together"),
    (clusters_out_of_turn, "together"),
    (offset_out_of_range, "existing"),
    (negative_offset, "existing"),
    (offset_twice, "once"),
    (offset_twice_and_published_twice, "once"),
    (foreign_partition, "existing"),
    (nobody_at_all, "subjects"),
    (cluster_named_twice, "once"),
    (no_evidence_lines, "nothing_else"),
    (no_rows, "nothing_missing"),
    (unusable_record, "existing"),
]


@pytest.mark.parametrize(("cheat", "check"), CHEATS, ids=[f"{cheat.__name__}-{check}" for cheat, check in CHEATS])
def test_a_planted_cheat_breaks_its_check(tmp_path: Path, cheat: Cheat, check: str) -> None:
    world = make_world(tmp_path)
    assert world.judge().exit_code == 0
    cheat(world)
    verdict = world.judge()
    assert verdict.exit_code == 1
    assert check in broken(verdict)


BLIND = [
    too_few_subjects,
    share_above_cap,
    one_record_in_two_clusters,
    equal_centroids_in_two_halves,
    centroid_of_another,
    row_twice,
    row_missing,
    row_of_nobody,
    one_grid_step,
    swapped_confidential,
    value_of_another_type,
    extra_field,
    unrounded_mean,
    order_of_arrival,
    two_clusters_mixed,
    unusable_record,
]


@pytest.mark.parametrize("cheat", BLIND, ids=lambda cheat: cheat.__name__)
def test_a_cheat_is_seen_without_evidence_where_rows_can_be_traced(tmp_path: Path, cheat: Cheat) -> None:
    world = make_world(tmp_path)
    assert world.judge(evidence=False).exit_code == 0
    cheat(world)
    assert world.judge(evidence=False).exit_code == 1


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
    world = make_world(tmp_path)
    world.evidence.insert(1, line)
    with pytest.raises(InputError, match=r"evidence\.jsonl, line 2: .*; write the evidence again") as error:
        world.judge()
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
def test_accounts_that_do_not_balance_are_broken(tmp_path: Path, field: str, value: object) -> None:
    world = make_world(tmp_path)
    assert world.judge(summary=True)["accounts"].status == "holds"
    world.summary[field] = value
    verdict = world.judge(summary=True)
    assert verdict.exit_code == 1
    assert broken(verdict) == {"accounts"}


# ---------------------------------------------------------------- exports of topics


def export(world: World, *, raw: bool) -> dict[str, Path]:
    """The same records in two partitions, clusters whole in one of them, offsets with a gap."""
    paths = world.write()
    place: dict[int, tuple[int, int]] = {}
    for number, members in enumerate(world.clusters):
        place |= {index: (number % 2, 100 + 3 * index) for index in members}
    lines = [
        {
            "partition": place[index][0],
            "offset": place[index][1],
            "value": json.dumps(record) if raw else record,
        }
        for index, record in enumerate(world.records)
    ]
    evidence = [
        {"partition": number % 2, "cluster": number // 2, "offsets": [place[index][1] for index in members]}
        for number, members in enumerate(world.clusters)
    ]
    # Clusters of a transaction stand in byte order, not in that of the evidence.
    order = sorted(range(len(world.rows)), key=lambda number: world.rows[number][0].encode())
    released = [{"partition": number % 2, "value": row} for number in order for row in world.rows[number]]
    for name, content in (("original", lines), ("evidence", evidence), ("released", released)):
        paths[name].write_text("".join(json.dumps(line) + "\n" for line in content), encoding="utf-8")
    return paths


@pytest.mark.parametrize("raw", [True, False])
def test_exports_of_topics_are_judged_per_partition(tmp_path: Path, *, raw: bool) -> None:
    world = make_world(tmp_path)
    paths = export(world, raw=raw)
    policy = Policy.load(_policy(tmp_path))
    verdict = verify(policy, paths["original"], paths["released"], paths["evidence"])
    assert verdict.exit_code == 0, verdict.text()
    assert verdict["together"].examined == len(world.clusters)
    assert verify(policy, paths["original"], paths["released"]).exit_code == 0


def test_a_row_in_another_partition_is_nothing_of_its_cluster(tmp_path: Path) -> None:
    paths = export(make_world(tmp_path), raw=True)
    lines = [json.loads(line) for line in paths["released"].read_text().splitlines()]
    lines[0]["partition"] = 1 - lines[0]["partition"]
    paths["released"].write_text("".join(json.dumps(line) + "\n" for line in lines))
    policy = Policy.load(_policy(tmp_path))
    verdict = verify(policy, paths["original"], paths["released"], paths["evidence"])
    assert {"nothing_else", "nothing_missing"} <= broken(verdict)


def test_a_cluster_is_called_by_its_partition_too(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    paths = export(world, raw=True)
    lines = [json.loads(line) for line in paths["released"].read_text().splitlines()]
    kept = [line for line in lines if line["value"] not in world.rows[3]]
    paths["released"].write_text("".join(json.dumps(line) + "\n" for line in kept))
    verdict = verify(Policy.load(_policy(tmp_path)), paths["original"], paths["released"], paths["evidence"])
    assert verdict["nothing_missing"].places == ("1/1",)


def test_a_cluster_torn_apart_in_a_topic_does_not_stand_together(tmp_path: Path) -> None:
    paths = export(make_world(tmp_path), raw=True)
    lines = paths["released"].read_text().splitlines()
    paths["released"].write_text("\n".join([*lines[1:], lines[0]]) + "\n")
    policy = Policy.load(_policy(tmp_path))
    assert "together" in broken(verify(policy, paths["original"], paths["released"], paths["evidence"]))


def test_a_topic_out_of_byte_order_is_seen(tmp_path: Path) -> None:
    paths = export(make_world(tmp_path), raw=True)
    lines = paths["released"].read_text().splitlines()
    lines[0], lines[1] = lines[1], lines[0]
    paths["released"].write_text("\n".join(lines) + "\n")
    policy = Policy.load(_policy(tmp_path))
    assert broken(verify(policy, paths["original"], paths["released"], paths["evidence"])) == {"byte_order"}


# ---------------------------------------------------------------- quarantine


def quarantined(tmp_path: Path) -> tuple[World, list[dict[str, object]]]:
    world = make_world(tmp_path)
    out = world.clusters.pop(0)
    world.release()
    return world, [{"topic": "t", "partition": 0, "offset": index, "reason": "suppressed"} for index in out]


def judged_with(world: World, references: list[dict[str, object]], *, complete: bool = True) -> set[str]:
    path = world.folder / "quarantine.jsonl"
    path.write_text("".join(json.dumps(reference) + "\n" for reference in references))
    return broken(world.judge(quarantine=path, complete=complete))


def test_released_and_referenced_records_are_all_records(tmp_path: Path) -> None:
    world, references = quarantined(tmp_path)
    assert judged_with(world, references) == set()


def test_what_is_still_held_is_not_missed(tmp_path: Path) -> None:
    world, references = quarantined(tmp_path)
    assert judged_with(world, references[1:], complete=False) == set()


def test_without_references_a_complete_release_has_every_record(tmp_path: Path) -> None:
    world, _ = quarantined(tmp_path)
    assert broken(world.judge(complete=True)) == {"complete"}
    assert make_world(tmp_path).judge(complete=True).exit_code == 0


def test_references_are_not_balanced_with_what_is_not_known(tmp_path: Path) -> None:
    world, references = quarantined(tmp_path)
    for record in world.records:
        record |= {"diagnosis": "flu", "ward": None}
    world.release()
    path = tmp_path / "quarantine.jsonl"
    for lines, status in ((references, "not examined"), (references * 2, "broken")):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        verdict = world.judge(evidence=False, quarantine=path, complete=True)
        assert verdict["references"].status == status
        assert verdict["complete"].status == "not examined"


def test_a_record_neither_released_nor_referenced_is_missed(tmp_path: Path) -> None:
    world, references = quarantined(tmp_path)
    assert judged_with(world, references[1:]) == {"complete"}


@pytest.mark.parametrize("offset", [10_000, -1, "released", "twice"])
def test_a_reference_must_be_to_a_record_that_was_not_released_and_once(tmp_path: Path, offset: int | str) -> None:
    world, references = quarantined(tmp_path)
    known: dict[int | str, object] = {"released": world.clusters[0][0], "twice": references[0]["offset"]}
    assert judged_with(world, [*references, {**references[0], "offset": known.get(offset, offset)}]) == {"references"}


@pytest.mark.parametrize(
    "bent",
    [{"reason": "income too high"}, {"value": 7}, {"reason": None}, {"topic": "income-7"}, {"topic": {"income": 7}}],
)
def test_a_reference_says_no_more_than_it_may(tmp_path: Path, bent: dict[str, object]) -> None:
    world, references = quarantined(tmp_path)
    assert judged_with(world, [*references[1:], references[0] | bent]) == {"reasons"}


# ---------------------------------------------------------------- who is a person


@pytest.mark.parametrize(
    "spellings",
    [
        [7, 7.0, "7", "7 ", "007"],
        ["é", "e\u0301", " é", "é\t", "\u00a0é"],
        [True, "true", " true", "true ", "true\n"],
    ],
)
def test_all_spellings_of_a_person_count_once(tmp_path: Path, spellings: list[object]) -> None:
    records = [{**record, "patient": name} for record, name in zip(make_records(K), spellings, strict=True)]
    world = World(tmp_path, records, [list(range(K))])
    verdict = world.judge()
    assert verdict["subjects"].worst == 1
    assert {"subjects", "share"} <= broken(verdict)


def test_texts_with_leading_zeros_are_different_people_where_the_type_says_text(tmp_path: Path) -> None:
    records = [{**record, "patient": "0" * number + "7"} for number, record in enumerate(make_records(K))]
    text = POLICY.replace("subject: true", "subject: true, type: string")
    world = World(tmp_path, records, [list(range(K))], policy=text)
    assert world.judge().exit_code == 0


# ---------------------------------------------------------------- what the judge says


def test_no_value_and_no_person_is_told(tmp_path: Path) -> None:
    records = [
        {**record, "patient": f"CANARY-{i}", "diagnosis": f"CANARY-{i}"} for i, record in enumerate(make_records(60))
    ]
    world = World(tmp_path, records, group(records))
    for rows in world.rows:
        rows.append(rows[0][:-1] + ',"CANARY":"CANARY"}')
    world.original_lines = [json.dumps(record) for record in records] + ['{"CANARY', '{"CANARY": 1}']
    verdict = world.judge(summary=True)
    assert verdict.exit_code == 1
    assert "CANARY" not in verdict.text()
    assert "CANARY" not in json.dumps(verdict.as_dict())


@pytest.mark.parametrize("name", ["original", "released", "evidence", "summary"])
def test_no_value_is_told_of_a_broken_file(tmp_path: Path, name: str) -> None:
    world = make_world(tmp_path)
    paths = world.write()
    paths[name].write_bytes(b'{"CANARY": CANARY\xff')
    policy = Policy.load(_policy(tmp_path))
    assert "CANARY" not in _told_or_refused(policy, paths)


def _told_or_refused(policy: Policy, paths: dict[str, Path]) -> str:
    try:
        verdict = verify(policy, paths["original"], paths["released"], paths["evidence"], paths["summary"])
    except InputError as error:
        assert error.__cause__ is None  # noqa: PT017 - refused or judged, both are right
        return str(error)
    assert verdict.exit_code == 1
    return verdict.text()


def _policy(folder: Path) -> Path:
    path = folder / "policy.yaml"
    path.write_text(POLICY)
    return path
