"""The form of the kernels never shows: whenever a stream changes to compiled kernels, its decisions are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shoal.formats import JsonDecoder, JsonEncoder
from shoal.kernels.jit import _Process
from shoal.policy import Policy
from shoal.streams import PartitionPipeline

pytestmark = pytest.mark.property

BLOCK, BLOCKS = 12, 6
ILL = {"role": "confidential", "type": "string"}
COST = {"role": "confidential", "bounds": [0, 12]}
ATTRIBUTES: dict[str, Any] = {
    "age": {"role": "quasi_identifier", "bounds": [0, 110]},
    "ward": {"role": "quasi_identifier", "scale": "nominal"},
    "ill": ILL,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "nearest": {},
    "greedy": {"attributes": ATTRIBUTES | {"cost": COST}, "steering": {"dependence": 0.5}},
    "awo": {"privacy": {"k": 3, "l": 2}},
    "block": {"attributes": ATTRIBUTES | {"ill": ILL | {"reference": "ills.csv"}}, "privacy": {"k": 3, "t": 0.5}},
}


def policy_of(rule: str, folder: Path) -> Policy:
    document = {
        "attributes": ATTRIBUTES,
        "subject": "every_record",
        "privacy": {"k": 3},
        "stream": {"delta": 18, "rule": rule},
    } | OPTIONS[rule]
    (folder / "ills.csv").write_text("value,share\na,0.5\nb,0.5\n")
    (folder / "policy.json").write_text(json.dumps(document))
    return Policy.load(folder / "policy.json")


def decisions(policy: Policy, switch_at: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return all decisions on a stream whose kernels are compiled from this block on; the flush is the last."""
    pipeline, decoder = PartitionPipeline(policy, JsonEncoder(policy)), JsonDecoder(policy)
    random = np.random.default_rng(4)
    names, found = {one.name for one in policy.attributes}, list[Any]()
    for number in range(BLOCKS + 1):
        monkeypatch.setattr(_Process, "is_compiled", number >= switch_at)
        if number == BLOCKS:
            decided = pipeline.flush()
        else:
            ages, words = random.random(BLOCK) * 110, random.integers(0, 2, (BLOCK, 2)).tolist()
            records = [
                {"age": age, "ward": "xy"[ward], "ill": "ab"[ill]} | ({"cost": age // 9} if "cost" in names else {})
                for age, (ward, ill) in zip(ages, words, strict=True)
            ]
            block = decoder.decode([json.dumps(record).encode() for record in records])
            offsets = block.index + number * BLOCK
            decided = pipeline.push(block, np.column_stack([0 * offsets, offsets]))
        found.append((decided.released, decided.rows, decided.suppressed, decided.sst_growth))
    assert sum(len(rows) for _, rows, *_ in found) > BLOCK
    return found


@pytest.mark.parametrize("rule", OPTIONS)
def test_the_block_at_which_kernels_change_their_form_decides_nothing(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = policy_of(rule, tmp_path)
    never, *switched = [decisions(policy, at, monkeypatch) for at in (BLOCKS + 1, *range(BLOCKS + 1))]
    assert switched == [never] * (BLOCKS + 1)
