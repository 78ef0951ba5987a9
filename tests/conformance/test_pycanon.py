"""The judge and pycanon find the same k, l and t in tables."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pytest
from pycanon.anonymity import entropy_l_diversity, k_anonymity, l_diversity, recursive_c_l_diversity, t_closeness
from shoal.audit import verify
from shoal.files import Files, run_batch
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.tables import AlgorithmSpec

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


# ---------------------------------------------------------------- confidential values

QUASI = ["age", "pay"]


def policy_of(privacy: dict[str, Any], name: str, kind: str) -> Policy:
    """Return the policy of tables with two numbers and one confidential attribute."""
    document = {
        "attributes": {
            "age": {"role": "quasi_identifier"},
            "pay": {"role": "quasi_identifier"},
            name: {"role": "confidential", "type": kind, "publish_unchanged": True},
        },
        "subject": "every_record",
        "undeclared": "drop",
        "privacy": {"k": 5, **privacy},
    }
    return Policy.from_document(Document.model_validate(document))


def released(folder: Path, values: list[str], name: str, kind: str) -> tuple[pd.DataFrame, dict[str, Path]]:
    """Release a table with these values under k alone; return it as pandas reads it, and the files."""
    random = Random(len(values))
    paths = {part: folder / part for part in ("original.csv", "released.csv", "evidence.jsonl")}
    rows = (f"{random.random() * 90},{random.random() * 1000},{value}\n" for value in values)
    paths["original.csv"].write_text(f"age,pay,{name}\n" + "".join(rows))
    original, target, evidence = map(str, paths.values())
    run_batch(policy_of({}, name, kind), Files(original, target, evidence=evidence), AlgorithmSpec("mdav"))
    types = {name: "int64" if kind == "integer" else str}
    return pd.read_csv(target, dtype=types, keep_default_na=False), paths


def worst(paths: dict[str, Path], privacy: dict[str, Any], name: str, kind: str, check: str) -> float:
    """Return the worst value that the judge finds in a check of this limit."""
    found = verify(policy_of(privacy, name, kind), *paths.values())[check].worst
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(3))
def test_l_diversity_is_that_of_pycanon(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    values = [random.choice(["flu", "flu", "flu", "cold", "gout", ""]) for _ in range(93)]
    frame, paths = released(tmp_path, values, "ill", "string")
    distinct = worst(paths, {"l": 2}, "ill", "string", "diversity")
    assert distinct == l_diversity(frame, QUASI, ["ill"])
    entropy = worst(paths, {"l": {"entropy": 2}}, "ill", "string", "diversity")
    assert int(entropy + 1e-9) == entropy_l_diversity(frame, QUASI, ["ill"])


def test_recursive_diversity_is_that_of_pycanon_where_all_values_are_equally_frequent(tmp_path: Path) -> None:
    # pycanon takes the rarest value for the most frequent one, so only such classes can be compared.
    frame, paths = released(tmp_path, [f"v{number}" for number in range(10)], "ill", "string")
    c, least = recursive_c_l_diversity(frame, QUASI, ["ill"])
    assert (c, least) == (2, 5)
    ratio = worst(paths, {"l": {"recursive": [2, 5]}}, "ill", "string", "diversity")
    assert int(ratio + 1) == c
    assert verify(policy_of({"l": {"recursive": [1, 5]}}, "ill", "string"), *paths.values())["diversity"].failed == 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["string", "integer"])
def test_t_closeness_is_that_of_pycanon(tmp_path: Path, seed: int, kind: str) -> None:
    random = Random(seed)
    values = [str(random.choice([1, 1, 1, 2, 3, 5, 80])) for _ in range(97)]
    frame, paths = released(tmp_path, values, "score", kind)
    distance = worst(paths, {"t": 0.5}, "score", kind, "closeness")
    assert distance == pytest.approx(t_closeness(frame, QUASI, ["score"]), abs=1e-9)
    assert 0 < distance < 1
