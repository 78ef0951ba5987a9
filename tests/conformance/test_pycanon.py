"""The judge and pycanon count the same k in tables of categories."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pandas as pd
import pytest
from pycanon.anonymity import k_anonymity
from shoal.audit import verify
from shoal.files import Files, run_batch
from shoal.pipeline import AlgorithmSpec
from shoal.policy import Policy
from shoal.policy.schema import Document

pytestmark = pytest.mark.conformance

TREE = {"any": {"heart": ["I21", "I50"], "lung": ["J18", "J45"]}}
DOCUMENT = {
    "attributes": {
        "sex": {"role": "quasi_identifier", "scale": "nominal", "missing": "group"},
        "code": {"role": "quasi_identifier", "scale": "nominal", "taxonomy": TREE},
        "stage": {"role": "quasi_identifier", "scale": "ordinal", "order": ["I", "II", "III"]},
        "note": {"role": "confidential", "type": "string"},
    },
    "subject": "every_record",
    "privacy": {"k": 4},
}


def table(random: Random, count: int) -> str:
    choices = (["M", "F", "X", ""], ["I21", "I50", "J18", "J45", "Z99"], ["I", "II", "III"])
    rows = (",".join([*map(random.choice, choices), f"n{number}"]) for number in range(count))
    return "sex,code,stage,note\n" + "".join(f"{row}\n" for row in rows)


@pytest.mark.parametrize("seed", range(3))
def test_the_smallest_class_of_a_table_is_that_of_pycanon(tmp_path: Path, seed: int) -> None:
    original, released, evidence = (tmp_path / name for name in ("in.csv", "out.csv", "evidence.jsonl"))
    original.write_text(table(Random(seed), 90))
    policy = Policy.from_document(Document.model_validate(DOCUMENT))
    run_batch(policy, Files(str(original), str(released), evidence=str(evidence)), AlgorithmSpec("mdav"))
    frame = pd.read_csv(released, dtype=str, keep_default_na=False)
    smallest = k_anonymity(frame, ["sex", "code", "stage"])
    judged = verify(policy, original, released)
    assert judged["alone"].worst == smallest >= 4
    sizes = [len(json.loads(line)["offsets"]) for line in evidence.read_text().splitlines()]
    with_evidence = verify(policy, original, released, evidence)
    assert with_evidence["subjects"].worst == min(sizes) <= smallest
    assert with_evidence.exit_code == 0, with_evidence.text()


def test_a_class_below_k_is_counted_alike(tmp_path: Path) -> None:
    original, released = tmp_path / "in.csv", tmp_path / "out.csv"
    original.write_text(table(Random(9), 9))
    rows = [f"F,I21,II,n{number}" for number in range(6)] + [f"M,any,I,n{number}" for number in range(6, 9)]
    released.write_text("sex,code,stage,note\n" + "".join(f"{row}\n" for row in rows))
    policy = Policy.from_document(Document.model_validate(DOCUMENT))
    frame = pd.read_csv(released, dtype=str, keep_default_na=False)
    judged = verify(policy, original, released)
    assert judged["alone"].worst == k_anonymity(frame, ["sex", "code", "stage"]) == 3
    assert judged["alone"].failed == 3
