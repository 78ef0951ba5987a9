"""l, t and the largest share of a value in the pipeline of a partition: from messages to clusters and figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shoal.errors import GuaranteeError, ParameterError
from shoal.formats import Block, JsonDecoder, JsonEncoder, ProtectedValues, Reason, RecordFault
from shoal.formats.json import find_json_faults
from shoal.policy import Policy
from shoal.protection.value_codes import ValueIndex
from shoal.streams import BlockDecisions, PartitionPipeline, precompile
from shoal.tables.table import ProtectedColumns
from support.policy_files import load

pytestmark = pytest.mark.unit

POLICY = """\
attributes:
  who: {{role: identifier, subject: true}}
  age: {{role: quasi_identifier, bounds: [0, 100], integer: true}}
  ward: {{role: confidential, type: string{ward}}}
  pay: {{role: confidential{pay}}}
  note: {{role: confidential, type: string}}
privacy: {{k: 4, {privacy}}}
stream: {{delta: 40, rule: {rule}}}
"""
WARDS = "value,share\neye,0.5\near,0.25\nnose,0.25\n"
PAYS = "value,share\n10,0.25\n20,0.25\n30,0.25\n,0.25\n"


def policy_of(folder: Path, privacy: str, rule: str = "awo", ward: str = "", pay: str = "") -> Policy:
    (folder / "wards.csv").write_text(WARDS)
    (folder / "pays.csv").write_text(PAYS)
    return load(POLICY.format(privacy=privacy, rule=rule, ward=ward, pay=pay), folder)


def records(count: int = 300) -> list[dict[str, Any]]:
    random = np.random.default_rng(2)
    wards = random.choice(["eye", "ear", "nose"], count, p=[0.6, 0.3, 0.1]).tolist()
    drawn = zip(random.integers(0, 101, count).tolist(), wards, random.integers(4, size=count).tolist(), strict=True)
    return [
        {"who": number, "age": age, "ward": ward, "pay": [10, 20, 30, None][pay], "note": f"{number:04}"}
        for number, (age, ward, pay) in enumerate(drawn)
    ]


def decoded(policy: Policy, data: list[dict[str, Any]]) -> Block:
    return JsonDecoder(policy).decode([json.dumps(record).encode() for record in data])


def run(policy: Policy, data: list[dict[str, Any]], cut: int = 1000) -> tuple[list[BlockDecisions], PartitionPipeline]:
    pipeline, decoder = PartitionPipeline(policy, JsonEncoder(policy)), JsonDecoder(policy)
    parts = []
    for start in range(0, len(data), cut):
        block = decoder.decode([json.dumps(record).encode() for record in data[start : start + cut]])
        offsets = block.index + start
        parts.append(pipeline.push(block, np.column_stack([0 * offsets, offsets])))
    return [*parts, pipeline.flush()], pipeline


def clusters_of(parts: list[BlockDecisions]) -> list[list[dict[str, Any]]]:
    return [[json.loads(row) for row in cluster.rows] for part in parts for cluster in part.clusters]


@pytest.mark.parametrize("privacy", ["l: 3", "l: {entropy: 1.8}", "l: {recursive: [3, 2]}", "t: 0.35"])
def test_the_size_of_blocks_and_the_codes_of_values_change_no_decision(privacy: str, tmp_path: Path) -> None:
    reference = ", reference: wards.csv" if privacy.startswith("t") else ""
    policy = policy_of(tmp_path, privacy, ward=f", protect: true{reference}")
    expected = run(policy, records())
    for cut in (1, 90):
        found, pipeline = run(policy, records(), cut)
        assert [c for part in found for c in part.clusters] == [c for part in expected[0] for c in part.clusters]
        assert [o for part in found for o in part.suppressed] == [o for part in expected[0] for o in part.suppressed]
        figures = [one.summary.as_dict(0, 1.0)["value_share"] for one in (pipeline, expected[1])]
        assert figures[0] == figures[1]


def test_a_missing_value_is_a_value_of_its_own(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "l: 2", pay=", protect: true")
    data = [record | {"pay": 5 if number % 2 else None} for number, record in enumerate(records(80))]
    parts, pipeline = run(policy, data)
    clusters = clusters_of(parts)
    assert len(clusters) > 5
    assert {len({row["pay"] for row in cluster}) for cluster in clusters} == {2}
    assert pipeline.summary.as_dict(0, 1.0)["value_share"] == {"max": 0.5}


@pytest.mark.parametrize(
    ("mark", "values", "reason"),
    [
        (", reference: pays.csv", ["10", "ten", None, True], "not a number, as the values of its reference are"),
        (", scale: ordinal, order: [10, 20, 30], reference: pays.csv", [10, 15, None, "x"], "not in its order"),
    ],
)
def test_a_value_that_the_reference_cannot_place_is_invalid(
    mark: str, values: list[Any], reason: str, tmp_path: Path
) -> None:
    policy = policy_of(tmp_path, "t: 0.5", pay=f", protect: true{mark}")
    data = [record | {"pay": value} for record, value in zip(records(4), values, strict=True)]
    block = decoded(policy, data)
    assert (block.index.tolist(), block.rejected) == ([0, 2], [(1, Reason.INVALID), (3, Reason.INVALID)])
    assert find_json_faults(policy, json.dumps(data[1]).encode()) == [RecordFault(reason, "pay")]


def test_codes_stay_for_delta_records_and_are_dropped_later(tmp_path: Path) -> None:
    index = ValueIndex(policy_of(tmp_path, "l: 2", ward=", protect: true"))

    def codes(*values: int) -> list[int]:
        """Encode a block of records, one per value; the delta of the policy is 40."""
        counted = np.arange(len(values))
        protected = ProtectedValues(counted[:, None], [[str(value) for value in values]])
        fields = [b""] * len(values)
        block = Block(np.zeros((len(values), 1)), counted, fields, counted, [], 0, protected=protected)
        found, bins = index.encode(block).T.tolist()
        assert bins == [0] * len(values)
        return list(found)

    assert codes(7, 8, 7) == [0, 1, 0]
    assert codes(*range(100, 139)) == [*range(2, 41)]
    assert codes(8) == [1], "39 records ago"
    assert codes(*range(200, 241)) == [*range(41, 82)]
    assert codes(*range(300, 341)) == [*range(82, 123)]
    assert codes(8, 7) == [123, 124], "no code is given twice"


def test_a_block_without_the_protected_values_is_refused(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "l: 2", ward=", protect: true")
    block = replace(decoded(policy, records(3)), protected=None)
    with pytest.raises(GuaranteeError, match="lacks the values of the protected attributes"):
        ValueIndex(policy).encode(block)
    with pytest.raises(GuaranteeError, match="lacks the values of the protected attributes"):
        ProtectedColumns(policy).add(block)


def test_a_record_that_its_reference_cannot_place_is_refused(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "t: 0.3", pay=", type: any, protect: true, reference: pays.csv")
    block = replace(decoded(policy, records(3)), protected=ProtectedValues(np.zeros((3, 1), np.int64), [["high"]]))
    assert ValueIndex(policy).encode(block)[:, 1].tolist() == [-1, -1, -1]
    with pytest.raises(ParameterError, match="bins: must be indices"):
        PartitionPipeline(policy, JsonEncoder(policy)).push(block, np.arange(6).reshape(3, 2))
    columns = ProtectedColumns(policy)
    columns.add(block)
    with pytest.raises(GuaranteeError, match="its reference cannot place"):
        columns.attributes(np.ones(3, np.bool_), np.arange(3))


def test_a_policy_without_protection_reads_no_values(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "max_share: 0.5")
    assert decoded(policy, records(3)).protected is None
    summary = run(policy, records(100))[1].summary.as_dict(0, 1.0)
    assert not {"l", "emd", "value_share", "d_x", "d_y"} & set(summary)


@pytest.mark.parametrize("rule", ["nearest", "greedy", "awo", "block"])
@pytest.mark.parametrize("privacy", ["l: 5", "t: 0.01, l: {entropy: 2}"])
def test_policies_that_protect_values_can_be_precompiled(privacy: str, rule: str, tmp_path: Path) -> None:
    precompile(
        policy_of(tmp_path, privacy, rule, ward=", protect: true, reference: wards.csv" if "t:" in privacy else "")
    )
