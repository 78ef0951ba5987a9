"""`verify` on small releases: outcomes, forms of files, refused inputs, options and fingerprints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from oracle.naive_release import POLICY, NaiveRelease, broken, load_policy, make_records, make_release
from shoal.audit import verify
from shoal.errors import InputError

pytestmark = pytest.mark.unit


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


# ---------------------------------------------------------------- empty and refused files


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


# ---------------------------------------------------------------- clusters that are inferred from the release


def test_records_with_equal_unchanged_fields_need_evidence(tmp_path: Path) -> None:
    records = [{**record, "diagnosis": "flu", "ward": None} for record in make_records(60)]
    naive = NaiveRelease(tmp_path, records, make_release(tmp_path).clusters)
    assert naive.verify().exit_code == 0
    verdict = naive.verify(evidence=False)
    assert verdict.exit_code == 2
    assert "--evidence" in verdict.undecided[0]
    assert verdict.counts["clusters"] is None
    assert not [name for name in verdict.measures if "per_subject" in name]
    # Rows with equal quasi-identifiers are of whole clusters.
    assert verdict.measures["single_value_share.diagnosis"] == 1
    assert verdict.measures["single_value_records.diagnosis"] == 1
    assert verdict.measures["near_duplicate_clusters"] is None


def test_an_undecided_release_can_still_be_broken(tmp_path: Path) -> None:
    records = [{**record, "diagnosis": "flu", "ward": None} for record in make_records(60)]
    naive = NaiveRelease(tmp_path, records, make_release(tmp_path).clusters)
    naive.rows[0] = naive.rows[0][:2]
    assert broken(naive.verify(evidence=False)) == {"alone"}
    naive.regenerate()
    naive.rows[0][0] = naive.rows[0][0].replace("flu", "gout")
    verdict = naive.verify(evidence=False)
    assert verdict.exit_code == 1
    assert "traced" in broken(verdict)


def test_a_file_sorted_as_a_whole_needs_evidence_if_unchanged_fields_come_first(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.rows = [sorted((row for rows in naive.rows for row in rows), key=str.encode)]
    assert naive.verify(table=True).exit_code == 0
    verdict = naive.verify(evidence=False)
    assert verdict.exit_code == 2
    assert "byte order as a whole" in verdict.undecided[0]


# ---------------------------------------------------------------- options of a policy


def policy_with(option: str) -> str:
    return POLICY.replace("max_share: 0.5", f"max_share: 0.5, {option}")


def test_a_correct_release_holds_with_every_option(tmp_path: Path) -> None:
    naive = make_release(tmp_path, 60, subjects=60)
    for record in naive.records:
        record |= {"age": 30 + record["age"] % 40, "income": 20_000 + record["income"] / 2, "dose": 1.0}
    options = "per_subject: {max: 9, window: 10}, min_population: 10"
    made = NaiveRelease(tmp_path, naive.records, naive.clusters, policy=policy_with(options))
    verdict = made.verify()
    assert verdict.exit_code == 0
    assert verdict["releases"].status == "holds"
    assert verdict["population"].status == "holds"
    assert not any("subjects were held" in unseen for unseen in verdict.not_examined)
    unseen = made.verify(partial=True).not_examined
    assert any("the end of the input released records while fewer than 10 subjects were held" in one for one in unseen)


# ---------------------------------------------------------------- the fingerprint of the policy


OTHER = "0123456789abcdef" * 4


def own(naive: NaiveRelease) -> str:
    return load_policy(naive.folder).fingerprint


def test_files_of_another_policy_are_broken(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    naive.evidence[3]["policy"] = OTHER
    verdict = naive.verify()
    assert broken(verdict) == {"policy"}
    assert verdict["policy"].places == (3,)
    note = verdict["policy"].note
    assert note.startswith(f"they name {OTHER}, and the given policy has {own(naive)}: ")
    assert note.endswith("give the policy under which the release was made")
    del naive.evidence[3]["policy"]
    naive.summary["policy"] = OTHER
    assert naive.verify().exit_code == 0
    verdict = naive.verify(summary=True)
    assert verdict["policy"].places == ("summary",)


@pytest.mark.parametrize("policy", ["", "x", OTHER[:-1], OTHER.upper(), 7, None, [OTHER]])
def test_a_malformed_fingerprint_is_refused(tmp_path: Path, policy: object) -> None:
    naive = make_release(tmp_path)
    naive.evidence[3]["policy"] = policy
    with pytest.raises(InputError, match=r"evidence\.jsonl, line 4: policy must be a fingerprint"):
        naive.verify()
    del naive.evidence[3]["policy"]
    naive.summary["policy"] = policy
    with pytest.raises(InputError, match=r"summary\.json: policy must be a fingerprint"):
        naive.verify(summary=True)
