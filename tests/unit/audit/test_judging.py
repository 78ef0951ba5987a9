"""Clusters, rebuilding, accounts, measures and the verdict: the judge as a whole on small releases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from oracle.naive_release import POLICY, World, broken, load_policy, make_records, make_world
from shoal.audit import Verdict, verify
from shoal.audit.reading import File, is_ended
from shoal.errors import InputError
from shoal.policy import CsvDialect

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("csv", [False, True])
@pytest.mark.parametrize("evidence", [False, True])
@pytest.mark.parametrize("people", [None, 25])
def test_a_sound_release_holds(tmp_path: Path, *, csv: bool, evidence: bool, people: int | None) -> None:
    verdict = make_world(tmp_path, 80, people=people, csv=csv).judge(evidence=evidence, summary=True)
    assert verdict.verified, verdict.text()
    assert verdict["subjects"].worst == 5
    assert verdict.counts["records"] == 80
    assert all(check.status == "holds" for check in verdict.checks)


def test_paths_may_be_texts_and_a_summary_a_mapping(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    paths = {name: str(path) for name, path in world.write().items()}
    policy = load_policy(tmp_path)
    for summary in (paths["summary"], world.summary):
        assert verify(policy, paths["original"], paths["released"], paths["evidence"], summary).exit_code == 0


def test_equal_twins_are_fine_with_evidence_and_undecided_without(tmp_path: Path) -> None:
    records = [{**record, "diagnosis": "flu", "ward": None} for record in make_records(60)]
    world = World(tmp_path, records, make_world(tmp_path).clusters)
    assert world.judge().exit_code == 0
    verdict = world.judge(evidence=False)
    assert verdict.exit_code == 2
    assert "--evidence" in verdict.undecided[0]
    assert verdict.counts["clusters"] is None
    assert not [name for name in verdict.measures if "subject" in name or "single" in name]


def test_what_cannot_be_decided_can_still_be_broken(tmp_path: Path) -> None:
    records = [{**record, "diagnosis": "flu", "ward": None} for record in make_records(60)]
    world = World(tmp_path, records, make_world(tmp_path).clusters)
    world.rows[0] = world.rows[0][:2]
    assert broken(world.judge(evidence=False)) == {"alone"}
    world.release()
    world.rows[0][0] = world.rows[0][0].replace("flu", "gout")
    verdict = world.judge(evidence=False)
    assert verdict.exit_code == 1
    assert "traced" in broken(verdict)


def test_a_cluster_ends_where_the_byte_order_falls(tmp_path: Path) -> None:
    records = make_records(20)
    for number, record in enumerate(records):
        record |= {"age": 40, "income": 1000.0, "dose": 0.5, "patient": f"p{number}", "diagnosis": f"d{number:02}"}
    order = [*range(0, 20, 2), *range(1, 20, 2)]
    world = World(tmp_path, records, [order[:10], order[10:]])
    verdict = world.judge(evidence=False)
    assert verdict.exit_code == 0
    assert verdict.counts["clusters"] == 2
    world.rows = [sorted(world.rows[0] + world.rows[1])]
    # As released they are one now, and nobody can tell.
    assert world.judge(evidence=False).exit_code == 0


def test_a_run_is_cut_wherever_it_falls(tmp_path: Path) -> None:
    records = make_records(11)
    for number, record in enumerate(records):
        record |= {"age": 40, "income": 1000.0, "dose": 0.5, "patient": f"p{number}", "diagnosis": f"d{number:02}"}
    # One row, then a fall: the first of them is alone.
    world = World(tmp_path, records, [[10], [*range(10)]])
    verdict = world.judge(evidence=False)
    assert verdict.counts["clusters"] == 2
    assert verdict["subjects"].worst == 1
    assert broken(verdict) == {"subjects", "share"}


def test_a_file_sorted_as_a_whole_needs_evidence_if_kept_fields_come_first(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.rows = [sorted((row for rows in world.rows for row in rows), key=str.encode)]
    assert world.judge().exit_code == 0
    verdict = world.judge(evidence=False)
    assert verdict.exit_code == 2
    assert "byte order as a whole" in verdict.undecided[0]


def test_a_file_in_the_order_of_its_input_needs_evidence_and_a_summary_that_says_so(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    by_diagnosis = {json.loads(row)["diagnosis"]: row for rows in world.rows for row in rows}
    released = sorted(index for members in world.clusters for index in members)
    world.rows = [[by_diagnosis[world.records[index]["diagnosis"]] for index in released]]
    assert broken(world.judge(summary=True)) == {"together"}
    world.summary["keep_order"] = True
    assert world.judge(summary=True).exit_code == 0
    assert world.judge(evidence=False).exit_code == 2


def test_without_kept_fields_rows_cannot_be_told_apart(tmp_path: Path) -> None:
    policy = """
attributes:
  patient: {role: identifier, subject: true}
  age: {role: quasi_identifier, bounds: [0, 200]}
privacy: {k: 2}
"""
    (tmp_path / "original.jsonl").write_text('{"patient":1,"age":40}\n{"patient":2,"age":41}\n')
    (tmp_path / "released.jsonl").write_text('{"age":40.5}\n{"age":40.5}\n')
    (tmp_path / "evidence.jsonl").write_text('{"partition":0,"cluster":0,"offsets":[0,1]}\n')
    files = [tmp_path / f"{name}.jsonl" for name in ("original", "released", "evidence")]
    loaded = load_policy(tmp_path, policy)
    assert verify(loaded, *files).exit_code == 0
    assert verify(loaded, *files[:2]).exit_code == 2
    # A stream publishes whole years, ties to even.
    assert verify(loaded, *files, table=False).exit_code == 1
    (tmp_path / "released.jsonl").write_text('{"age":40}\n{"age":40}\n')
    assert verify(loaded, *files, table=False).exit_code == 0


def test_every_record_may_be_a_person_of_its_own(tmp_path: Path) -> None:
    text = POLICY.replace(", subject: true", "").replace("\nattributes", "\nsubject: every_record\nattributes")
    records = [{**record, "patient": "one"} for record in make_records(60)]
    world = World(tmp_path, records, make_world(tmp_path).clusters, policy=text)
    assert world.judge()["subjects"].worst == 5
    assert world.judge().exit_code == 0


def test_json_may_become_csv_and_csv_json(tmp_path: Path) -> None:
    records = [{**record, "ward": "yes" if record["ward"] is True else record["ward"]} for record in make_records(60)]
    text = World(tmp_path, records, make_world(tmp_path).clusters)
    table = World(tmp_path, records, text.clusters, csv=True)
    paths, cells = text.write(), table.write()
    policy = load_policy(tmp_path)
    assert verify(policy, paths["original"], cells["released"], paths["evidence"]).exit_code == 0
    # From a table every value of ward is a text, and so it is in JSON.
    texts = [{**record, "ward": "" if record["ward"] is None else str(record["ward"])} for record in records]
    typed = World(tmp_path, texts, text.clusters)
    assert verify(policy, cells["original"], typed.write()["released"], paths["evidence"]).exit_code == 0


# ---------------------------------------------------------------- empty files


def test_an_empty_original_is_refused(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.original_lines = []
    with pytest.raises(InputError, match=r"original\.jsonl: no records"):
        world.judge()
    world.csv, world.original_lines = True, ["patient,diagnosis,age,income,dose,ward"]
    with pytest.raises(InputError, match=r"original\.csv: no records"):
        world.judge()


def test_nothing_released_is_undecided_until_the_summary_says_so(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.rows, world.evidence = [], []
    for evidence in (True, False):
        verdict = world.judge(evidence=evidence)
        assert verdict.exit_code == 2
        assert "--summary" in verdict.undecided[0]
    world.summary = {"records_in": 60, "released": 0, "suppressed": {"suppressed": 60}, "quarantined": {}, "held": 0}
    verdict = world.judge(summary=True)
    assert verdict.exit_code == 0
    assert verdict["subjects"].status == "not examined"


def test_an_empty_csv_release_without_a_header_shows_nothing(tmp_path: Path) -> None:
    world = make_world(tmp_path, csv=True)
    paths = world.write()
    paths["released"].write_bytes(b"")
    assert verify(load_policy(tmp_path), paths["original"], paths["released"]).exit_code == 2


def test_a_byte_order_mark_of_a_table_is_read_but_never_published(tmp_path: Path) -> None:
    paths = make_world(tmp_path, csv=True).write()
    files = load_policy(tmp_path), paths["original"], paths["released"], paths["evidence"]
    paths["original"].write_bytes(b"\xef\xbb\xbf" + paths["original"].read_bytes())
    assert verify(*files).exit_code == 0
    paths["released"].write_bytes(b"\xef\xbb\xbf" + paths["released"].read_bytes())
    assert "columns" in broken(verify(*files))


def test_a_header_is_judged_even_alone(tmp_path: Path) -> None:
    world = make_world(tmp_path, csv=True)
    paths = world.write()
    paths["released"].write_text("patient,age\n")
    assert {"columns", "hidden"} <= broken(verify(load_policy(tmp_path), paths["original"], paths["released"]))


def test_an_export_is_not_compared_with_a_file(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    paths = world.write()
    paths["released"].write_text('{"partition":0,"value":"{}"}\n')
    with pytest.raises(InputError, match="give two exports or none"):
        verify(load_policy(tmp_path), paths["original"], paths["released"])


def test_an_offset_that_stands_twice_in_an_export_is_refused(tmp_path: Path) -> None:
    paths = make_world(tmp_path).write()
    paths["original"].write_text('{"partition":0,"offset":1,"value":{}}\n' * 2)
    with pytest.raises(InputError, match=r"line 2: this partition and offset stand twice"):
        verify(load_policy(tmp_path), paths["original"], paths["released"])


def test_a_policy_with_the_fields_of_an_export_means_its_own(tmp_path: Path) -> None:
    policy = """
attributes:
  partition: {role: identifier, subject: true}
  offset: {role: quasi_identifier, bounds: [0, 100], integer: true}
  value: {role: other, publish_unchanged: true}
privacy: {k: 2}
stream: {delta: 5}
"""
    (tmp_path / "original.jsonl").write_text(
        "".join(f'{{"partition":{i},"offset":{i},"value":{i}}}\n' for i in range(2))
    )
    (tmp_path / "released.jsonl").write_text('{"offset":0,"value":0}\n{"offset":0,"value":1}\n')
    verdict = verify(load_policy(tmp_path, policy), tmp_path / "original.jsonl", tmp_path / "released.jsonl")
    assert verdict.exit_code == 0, verdict.text()


# ---------------------------------------------------------------- summary


@pytest.mark.parametrize(
    "summary",
    [
        "not json",
        "[]",
        "{}",
        '{"elapsed_s":1}',
        '{"released":"many"}',
        '{"released":true}',
        '{"released":{"a":null}}',
        '{"released":1.5}',
        '{"clusters":1,"share":{"max":"x"}}',
        "",
    ],
)
def test_a_summary_that_is_none_is_refused(tmp_path: Path, summary: str) -> None:
    world = make_world(tmp_path)
    paths = world.write()
    paths["summary"].write_text(summary)
    with pytest.raises(InputError, match="summary"):
        verify(load_policy(tmp_path), paths["original"], paths["released"], paths["evidence"], paths["summary"])


@pytest.mark.parametrize(
    ("bent", "agrees"),
    [
        ({"subjects": {"min": 5.002}}, False),
        ({"subjects": {"min": 5.0}}, True),
        ({"cluster_size": {"mean": 5.455}}, True),
        ({"cluster_size": {"mean": 5.46}}, False),
        ({"suppressed": None, "records_in": 60, "quarantined": {"invalid": 3}}, True),
    ],
)
def test_counts_agree_exactly_and_fractions_to_four_digits(tmp_path: Path, bent: Any, agrees: bool) -> None:  # noqa: FBT001
    world = make_world(tmp_path)
    world.summary |= bent
    assert (world.judge(summary=True)["accounts"].status == "holds") is agrees


@pytest.mark.parametrize("line", ["x", "7", '{"partition":0}', '{"partition":0,"offset":"1"}'])
def test_a_quarantine_of_another_shape_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "quarantine.jsonl"
    path.write_text('{"topic":"t","partition":0,"offset":1,"reason":"invalid"}\n' + line)
    with pytest.raises(InputError, match=r"quarantine\.jsonl, line 2: .*; export the quarantine again"):
        make_world(tmp_path).judge(quarantine=path)


def test_fields_that_are_null_are_not_compared(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.summary = dict.fromkeys(world.summary) | {"released": 60}
    verdict = world.judge(summary=True)
    assert verdict["accounts"].examined == 1
    assert verdict.exit_code == 0


def test_the_summary_of_a_table_is_compared(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    sizes = world.summary["cluster_size"]
    world.summary = {"records": 60, "clusters": 11, "cluster_size": sizes, "algorithm": "mdav"}
    assert world.judge(summary=True).exit_code == 0
    assert world.judge(summary=True)["accounts"].examined == 5
    world.summary["records"] = 59
    assert "accounts" in broken(world.judge(summary=True))


def test_blank_lines_are_records_unless_nothing_follows_them(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.original_lines = [*map(json.dumps, world.records), "", " ", ""]
    assert world.judge(summary=True, complete=True).exit_code == 0
    world.original_lines[-1] = "{}"
    world.summary |= {"records_in": 63, "quarantined": {"undecodable": 2, "invalid": 1}}
    assert world.judge(summary=True).exit_code == 0
    assert broken(world.judge(summary=True, complete=True)) == {"complete"}


def test_a_file_that_grew_since_it_was_read_is_not_broken_but_not_complete(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.original_lines = [json.dumps(record) for record in [*world.records, *world.records[:2]]]
    verdict = world.judge(summary=True)
    assert verdict.exit_code == 0
    assert any("60 records read; the 2 that follow were not examined" in warning for warning in verdict.warnings)
    assert broken(world.judge(summary=True, complete=True)) == {"complete"}


def test_no_record_behind_the_last_one_read_was_released_or_is_referenced(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.summary |= {"records_in": 59, "released": 60, "held": -1}
    assert broken(world.judge(summary=True)) == {"accounts"}
    world = make_world(tmp_path)
    world.original_lines = [json.dumps(record) for record in [*world.records, *world.records[:2]]]
    path = tmp_path / "quarantine.jsonl"
    for offset, found in ((60, {"accounts"}), (61, {"accounts"})):
        path.write_text(json.dumps({"topic": "t", "partition": 0, "offset": offset, "reason": "invalid"}) + "\n")
        assert broken(world.judge(summary=True, quarantine=path)) == found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", '{"who":"p'),
        ("a.jsonl", "[]"),
        ("a.csv", "p9,3"),
        ("a.csv", 'p9,30,"x\n'),
        ("a.csv", 'p9,30,"x\ny'),
    ],
)
@pytest.mark.parametrize("is_begun", [True, False])
def test_a_last_record_without_an_end_need_not_have_been_read(
    tmp_path: Path,
    name: str,
    text: str,
    is_begun: bool,  # noqa: FBT001
) -> None:
    header = "who,age,note\n" if name == "a.csv" else ""
    path = tmp_path / name
    path.write_text(header + ('p,3,"a"b\n' if header else "{}\n") + (text if is_begun else ""))
    assert is_ended(File.of(path, CsvDialect())) is not is_begun


def test_a_last_record_without_an_end_is_not_missed_and_any_other_is(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    paths = world.write()
    policy, whole = load_policy(tmp_path), paths["original"].read_text()

    def judged(text: str) -> Verdict:
        paths["original"].write_text(text)
        return verify(policy, *paths.values(), complete=True)

    begun = judged(whole + '{"patient":"p')
    assert begun.exit_code == 0
    assert "the last record has no end" in begun["complete"].note
    assert broken(judged(whole + '{"patient":"p\n')) == {"complete"}
    assert broken(judged(whole + '{}\n{"patient":"p')) == {"complete"}


def test_another_reading_of_the_policy_is_a_warning(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.summary |= {"released": 60, "records_in": 62, "quarantined": {"invalid": 1}, "held": 1}
    world.original_lines = [*map(json.dumps, world.records), "{}", "[]"]
    verdict = world.judge(summary=True)
    assert verdict.exit_code == 0
    assert any("the summary counts 1 quarantined records; 2 do not fit" in warning for warning in verdict.warnings)


# ---------------------------------------------------------------- measures and warnings


def test_releases_per_subject_and_agreeing_clusters_are_measured(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    for index in world.clusters[0]:
        world.records[index]["diagnosis"] = "flu"
    for number, members in enumerate(world.clusters):
        for place, index in enumerate(members):
            world.records[index]["patient"] = "often" if place == 0 and number < 7 else f"p{index}"
    # Somebody who is never released does not count.
    world.records.insert(0, {**world.records[0], "patient": "never"})
    world.clusters = [[index + 1 for index in members] for members in world.clusters]
    world.release()
    verdict = world.judge()
    assert verdict.exit_code == 0
    assert verdict.measures["releases_per_subject_max"] == 7
    assert verdict.measures["releases_per_subject_mean"] == pytest.approx(60 / 54)
    assert verdict.measures["single_value_share.diagnosis"] == pytest.approx(1 / 11)


def warned(tmp_path: Path, ward: list[Any], *, n: int = 60) -> list[str]:
    records = [{**record, "ward": value} for record, value in zip(make_records(n), ward, strict=True)]
    world = World(tmp_path, records, make_world(tmp_path, n).clusters)
    verdict = world.judge()
    assert verdict.exit_code == 0
    return [warning for warning in verdict.warnings if warning.startswith("ward")]


def test_a_field_of_unique_values_is_warned_of(tmp_path: Path) -> None:
    (warning,) = warned(tmp_path, [7 * number % 60 for number in range(60)])
    assert "100% of its values are unique" in warning


def test_a_field_that_follows_the_order_is_warned_of(tmp_path: Path) -> None:
    (warning,) = warned(tmp_path, [number // 4 for number in range(60)])
    assert "rank correlation 1.00" in warning
    (warning,) = warned(tmp_path, [f"t{90 - number // 4}" for number in range(60)])
    assert "rank correlation" in warning
    assert warned(tmp_path, [str(8 + number // 20) for number in range(60)])


def test_common_values_in_no_order_are_not_warned_of(tmp_path: Path) -> None:
    assert warned(tmp_path, [number % 3 for number in range(60)]) == []
    assert warned(tmp_path, [None] * 60) == []
    assert warned(tmp_path, ["x"] * 30 + [None] * 30) == []


@pytest.mark.parametrize(("unique", "is_told"), [(2, False), (4, True)])
def test_more_than_a_twentieth_of_unique_values_is_warned_of(tmp_path: Path, unique: int, is_told: bool) -> None:  # noqa: FBT001
    common = [f"c{number % 3}" for number in range(60 - unique)]
    values = [*common[:20], *(f"u{number}" for number in range(unique)), *common[20:]]
    assert any("are unique" in text for text in warned(tmp_path, values)) is is_told


@pytest.mark.parametrize("csv", [False, True])
def test_unique_values_are_a_share_of_those_that_are_there(tmp_path: Path, csv: bool) -> None:  # noqa: FBT001
    world = make_world(tmp_path, 60, csv=csv)
    for number, record in enumerate(world.records):
        record["ward"] = f"w{number * 7 % 60}" if number % 20 == 7 else None
    world.release()
    assert world.judge().measures["unique_share.ward"] == 1
    assert any(text.startswith("ward") and "unique" in text for text in world.judge().warnings)
    assert broken(world.judge(strict=True)) == {"unchanged"}


def test_few_records_are_always_unique_and_not_warned_of(tmp_path: Path) -> None:
    assert warned(tmp_path, list(range(20)), n=20) == []


@pytest.mark.parametrize(("one", "other"), [("1.5e-7", "1.5e-07"), ("100", "100.0"), ("10000000000000000", "1e16")])
def test_rows_are_not_marked_by_the_spelling_of_a_number(tmp_path: Path, one: str, other: str) -> None:
    world = make_world(tmp_path, 60)
    for record in world.records:
        record["ward"] = float(one)
    world.release()
    world.rows = [[row.replace(json.dumps(float(one)), one) for row in rows] for rows in world.rows]
    assert world.judge().exit_code == 0
    world.rows[3][0] = world.rows[3][0].replace(one, other)
    assert "spelling" in broken(world.judge())


def test_members_of_a_cluster_are_equal_in_every_byte_of_their_quasi_identifiers(tmp_path: Path) -> None:
    world = make_world(tmp_path, 60)
    world.policy = POLICY.replace("resolution: 0.05", "resolution: 0")
    for record in world.records:
        record["dose"] = 2e-9
    world.release()
    world.rows = [[row.replace('"dose":0.00', '"dose":2e-09') for row in rows] for rows in world.rows]
    assert world.judge().exit_code == 0
    world.rows[3][0] = world.rows[3][0].replace("2e-09", "2e-9")
    assert broken(world.judge()) >= {"grid", "nothing_else", "together"}


# ---------------------------------------------------------------- the verdict


def test_a_verdict_is_plain_values_and_a_text(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    verdict = world.judge(summary=True)
    told = json.loads(json.dumps(verdict.as_dict()))
    assert told["outcome"] == "holds"
    assert told["verified"] is True
    assert told["exit_code"] == 0
    assert told["counts"] == {"records": 60, "usable": 60, "unusable": 0, "rows": 60, "clusters": 11}
    assert {check["name"] for check in told["checks"]} >= {"subjects", "share", "once", "accounts"}
    assert len(told["not_examined"]) >= 5
    text = verdict.text()
    assert text.startswith("holds: 60 records, 60 usable")
    assert "holds: every cluster holds at least 5 different subjects (11 examined, worst 5)" in text
    assert "not examined: keys, headers and timestamps" in text


def test_a_broken_verdict_names_clusters_and_counts(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    world.rows = [rows[1:] for rows in world.rows]
    text = world.judge().text()
    assert text.startswith("broken: ")
    assert "BROKEN: every recomputed row of a cluster was released (11 examined, 11 failed); cluster 0, 1, " in text
    assert ", ..." in text
    world.release()
    world.rows = [rows[1:] if number < 10 else rows for number, rows in enumerate(world.rows)]
    assert "(11 examined, 10 failed); cluster 0, 1, 2, 3, 4, 5, 6, 7, 8, 9\n" in world.judge().text()


def test_an_undecided_verdict_says_what_would_decide(tmp_path: Path) -> None:
    verdict = Verdict((), {"clusters": None}, {}, undecided=("give it",))
    assert verdict.outcome == "undecided"
    assert verdict.exit_code == 2
    assert not verdict.verified
    assert "undecided: give it" in verdict.text()
    assert "unknown clusters" in verdict.text()
    assert tmp_path.exists()
