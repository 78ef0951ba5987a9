"""The fingerprint of the policy in evidence and summary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from oracle.naive_release import NaiveRelease, broken, load_policy, make_release
from shoal.audit import verify
from shoal.errors import InputError

pytestmark = pytest.mark.unit

OTHER = "0123456789abcdef" * 4


def own(naive: NaiveRelease) -> str:
    return load_policy(naive.folder).fingerprint


def test_evidence_and_summary_of_the_given_policy_hold(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    for line in naive.evidence:
        line["policy"] = own(naive)
    naive.summary["policy"] = own(naive)
    assert naive.verify(summary=True).exit_code == 0


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


def test_a_topic_under_several_policies_needs_the_others(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    paths = naive.write()
    messages = (
        json.dumps({"partition": 0, "offset": number, "value": json.dumps(record)})
        for number, record in enumerate(naive.records)
    )
    paths["original"].write_text("\n".join(messages) + "\n")
    rows = (json.dumps({"partition": 0, "value": row}) for rows in naive.rows for row in rows)
    paths["released"].write_text("\n".join(rows) + "\n")
    files = load_policy(tmp_path), paths["original"], paths["released"], paths["evidence"]
    assert verify(*files).exit_code == 0
    naive.evidence[3]["policy"] = OTHER
    paths["evidence"].write_text("\n".join(map(json.dumps, naive.evidence)) + "\n")
    verdict = verify(*files)
    assert verdict.exit_code == 2
    assert len(verdict.undecided) == 1
    assert OTHER in verdict.undecided[0]
