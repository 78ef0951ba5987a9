"""`verify` on small releases: outcomes, forms of files, and refused inputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from oracle.naive_release import POLICY, NaiveRelease, broken, load_policy, make_records, make_release
from shoal.audit import verify
from shoal.errors import InputError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("csv", [False, True])
@pytest.mark.parametrize("evidence", [False, True])
@pytest.mark.parametrize("subjects", [None, 25])
def test_a_correct_release_holds(tmp_path: Path, *, csv: bool, evidence: bool, subjects: int | None) -> None:
    verdict = make_release(tmp_path, 80, subjects=subjects, csv=csv).verify(evidence=evidence, summary=True)
    assert verdict.verified, verdict.text()
    assert verdict["subjects"].worst == 5
    assert verdict.counts["records"] == 80
    assert all(check.status == "holds" for check in verdict.checks)


def test_paths_may_be_str_and_a_summary_may_be_a_mapping(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    paths = {name: str(path) for name, path in naive.write().items()}
    policy = load_policy(tmp_path)
    for summary in (paths["summary"], naive.summary):
        assert verify(policy, paths["original"], paths["released"], paths["evidence"], summary).exit_code == 0


def test_a_table_may_keep_the_order_of_its_input_only_if_the_policy_says_so(tmp_path: Path) -> None:
    table = POLICY.replace("stream: {delta: 1000}", "")
    naive = make_release(tmp_path)
    by_diagnosis = {json.loads(row)["diagnosis"]: row for rows in naive.rows for row in rows}
    released = sorted(index for members in naive.clusters for index in members)
    naive.rows = [[by_diagnosis[naive.records[index]["diagnosis"]] for index in released]]
    naive.summary["keep_order"] = True
    naive.policy = table
    assert broken(naive.verify(summary=True, table=False)) == {"byte_order"}
    naive.policy = table + "table: {keep_order: true}\n"
    verdict = naive.verify(summary=True, table=False)
    assert verdict.exit_code == 0
    assert "table.keep_order" in verdict["together"].note
    assert naive.verify(evidence=False, table=False).exit_code == 2


def test_no_summary_allows_a_stream_the_order_of_its_input(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    by_diagnosis = {json.loads(row)["diagnosis"]: row for rows in naive.rows for row in rows}
    naive.rows = [[by_diagnosis[record["diagnosis"]] for record in naive.records]]
    naive.summary["keep_order"] = True
    assert broken(naive.verify(summary=True)) == {"together"}
    # What the policy allows to tables does not apply to a stream.
    naive.policy = POLICY + "table: {keep_order: true}\n"
    assert broken(naive.verify(summary=True, table=False)) == {"together"}
    undecided = naive.verify(summary=True)
    assert undecided.exit_code == 2
    assert "--table" in undecided.undecided[0]
    assert naive.verify(summary=True, table=True).exit_code == 0


def test_without_unchanged_fields_rows_cannot_be_told_apart(tmp_path: Path) -> None:
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


def test_every_record_may_be_a_subject_of_its_own(tmp_path: Path) -> None:
    text = POLICY.replace(", subject: true", "").replace("\nattributes", "\nsubject: every_record\nattributes")
    records = [{**record, "patient": "one"} for record in make_records(60)]
    naive = NaiveRelease(tmp_path, records, make_release(tmp_path).clusters, policy=text)
    assert naive.verify()["subjects"].worst == 5
    assert naive.verify().exit_code == 0


def test_json_may_be_released_as_csv_and_csv_as_json(tmp_path: Path) -> None:
    records = [{**record, "ward": "yes" if record["ward"] is True else record["ward"]} for record in make_records(60)]
    text = NaiveRelease(tmp_path, records, make_release(tmp_path).clusters)
    table = NaiveRelease(tmp_path, records, text.clusters, csv=True)
    paths, cells = text.write(), table.write()
    policy = load_policy(tmp_path)
    assert verify(policy, paths["original"], cells["released"], paths["evidence"]).exit_code == 0
    # In CSV every value of ward is a text, so it is a text in JSON, too.
    texts = [{**record, "ward": "" if record["ward"] is None else str(record["ward"])} for record in records]
    typed = NaiveRelease(tmp_path, texts, text.clusters)
    assert verify(policy, cells["original"], typed.write()["released"], paths["evidence"]).exit_code == 0


# ---------------------------------------------------------------- empty and refused files


def test_an_empty_original_is_refused(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.original_lines = []
    with pytest.raises(InputError, match=r"original\.jsonl: no records"):
        naive.verify()
    naive.csv, naive.original_lines = True, ["patient,diagnosis,age,income,dose,ward"]
    with pytest.raises(InputError, match=r"original\.csv: no records"):
        naive.verify()


def test_an_empty_release_is_undecided_unless_the_summary_states_it(tmp_path: Path) -> None:
    naive = make_release(tmp_path, subjects=4)
    naive.rows, naive.evidence = [], []
    for evidence in (True, False):
        verdict = naive.verify(evidence=evidence)
        assert verdict.exit_code == 2
        assert "--summary" in verdict.undecided[0]
    naive.summary = {"records_in": 60, "released": 0, "suppressed": {"suppressed": 60}, "quarantined": {}, "held": 0}
    verdict = naive.verify(summary=True)
    assert verdict.exit_code == 0
    assert verdict["subjects"].status == "not examined"


def test_no_summary_confirms_an_empty_release_of_enough_subjects(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.rows, naive.evidence = [], []
    naive.summary = {"records_in": 60, "released": 0, "suppressed": {"suppressed": 60}, "quarantined": {}, "held": 0}
    verdict = naive.verify(summary=True)
    assert broken(verdict) == {"complete", "accounts"}
    assert verdict["complete"].failed > 40


def test_an_empty_csv_release_without_header_is_undecided(tmp_path: Path) -> None:
    naive = make_release(tmp_path, csv=True)
    paths = naive.write()
    paths["released"].write_bytes(b"")
    assert verify(load_policy(tmp_path), paths["original"], paths["released"]).exit_code == 2


def test_a_byte_order_mark_is_accepted_in_the_original_only(tmp_path: Path) -> None:
    paths = make_release(tmp_path, csv=True).write()
    files = load_policy(tmp_path), paths["original"], paths["released"], paths["evidence"]
    paths["original"].write_bytes(b"\xef\xbb\xbf" + paths["original"].read_bytes())
    assert verify(*files).exit_code == 0
    paths["released"].write_bytes(b"\xef\xbb\xbf" + paths["released"].read_bytes())
    assert "columns" in broken(verify(*files))


def test_a_header_without_rows_is_checked(tmp_path: Path) -> None:
    naive = make_release(tmp_path, csv=True)
    paths = naive.write()
    paths["released"].write_text("patient,age\n")
    assert {"columns", "hidden"} <= broken(verify(load_policy(tmp_path), paths["original"], paths["released"]))


def test_an_export_cannot_be_compared_with_a_plain_file(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    paths = naive.write()
    paths["released"].write_text('{"partition":0,"value":"{}"}\n')
    with pytest.raises(InputError, match="give two exports or none"):
        verify(load_policy(tmp_path), paths["original"], paths["released"])


def test_a_repeated_offset_in_an_export_is_refused(tmp_path: Path) -> None:
    paths = make_release(tmp_path).write()
    paths["original"].write_text('{"partition":0,"offset":1,"value":{}}\n' * 2)
    with pytest.raises(InputError, match=r"line 2: this partition and offset are repeated"):
        verify(load_policy(tmp_path), paths["original"], paths["released"])


def test_declared_fields_with_the_names_of_an_export_are_plain_records(tmp_path: Path) -> None:
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
