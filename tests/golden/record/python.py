"""The part of the record that is made with the public Python names."""

from __future__ import annotations

import hashlib
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from golden.record.inputs import lines, numbers, records
from shoal import Policy, StreamAggregator, microaggregate, verify

__all__ = ["python_record"]

Record = dict[str, Any]
_RULES = ("nearest", "greedy", "awo", "block", "auto")
_ALGORITHMS = ("auto", "md", "mdav", "vmdav", "hilbert", "genetic", "approximate")
_STREAMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "position": {"position": 0.02},
    "target_span": {"position": {"target_span": 5}},
    "weights": {"weights": [1.0, 0.5, 3.0]},
    "large k": {"k": 8},
}


def python_record() -> Record:
    """Return what `StreamAggregator`, `microaggregate`, `Policy` and `verify` give; written in the current folder."""
    values = _values(240)
    subjects = [one["who"] for one in records(240, seed=77)]
    found: Record = {}
    for (name, options), rule, own in product(_STREAMS.items(), _RULES, (None, subjects)):
        found[f"stream {name} {rule} subjects={own is not None}"] = _streamed(values, own, {"rule": rule} | options)
    for algorithm, refine in product(_ALGORITHMS, ("none", "descent")):
        found[f"microaggregate {algorithm} {refine}"] = _labels(values, algorithm=algorithm, refine=refine, seed=2)
    for refine in ("none", "descent"):
        found[f"microaggregate optimal {refine}"] = _labels(values[:, :1], algorithm="optimal", refine=refine)
    found["microaggregate mdav anneal"] = _labels(values[:60], algorithm="mdav", refine="anneal", seed=4)
    found["microaggregate mdav exact"] = _labels(values[:45], algorithm="mdav", refine="exact")
    return found | {"policy and verify": _verified()}


def _values(count: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    draw = numbers(5)
    rows = [[next(draw) % 1000 / 1000 + place % 5 * (j + 1) / 4 for j in range(3)] for place in range(count)]
    return np.array(rows)


def _hash(*arrays: Any) -> str:
    joined = hashlib.sha256()
    for array in arrays:
        taken = np.ascontiguousarray(array)
        joined.update(f"{taken.dtype} {taken.shape} ".encode() + taken.tobytes())
    return joined.hexdigest()


def _labels(values: Any, **options: Any) -> str:
    labels = microaggregate(values, k=3, **options)
    return f"{len(np.unique(labels))} clusters {_hash(labels)}"


def _streamed(values: Any, subjects: list[str] | None, options: dict[str, Any]) -> str:
    aggregator = StreamAggregator(**({"k": 3, "delta": 20} | options))
    outputs = []
    for first in range(0, len(values), 70):
        own = None if subjects is None else subjects[first : first + 70]
        outputs.append(aggregator.push(values[first : first + 70], subjects=own))
    outputs.append(aggregator.flush())
    hashed = _hash(*(a for out in outputs for a in (out.positions, out.offsets, out.centroids, out.suppressed)))
    released = sum(len(out.positions) for out in outputs)
    return f"{sum(len(out.offsets) - 1 for out in outputs)} clusters, {released} released, {hashed}"


def _verified() -> Record:
    """Judge two releases by hand: one that holds and one that does not."""
    age = {"role": "quasi_identifier", "bounds": [0, 110], "resolution": 1}
    document = {"attributes": {"who": {"role": "identifier", "subject": True}, "age": age}, "privacy": {"k": 2}}
    Path("policy.json").write_text(json.dumps(document), encoding="utf-8")
    policy = Policy.load("policy.json")
    people = [{"who": f"p{place}", "age": 10 * place + 10} for place in range(6)]
    original, released, evidence = Path("original.jsonl"), Path("released.jsonl"), Path("evidence.jsonl")
    original.write_text("\n".join(lines(people, "jsonl", ("who", "age"))) + "\n", encoding="utf-8")
    clusters = [{"partition": 0, "cluster": j, "offsets": [2 * j, 2 * j + 1]} for j in range(3)]
    evidence.write_text("".join(json.dumps(one) + "\n" for one in clusters), encoding="utf-8")
    found: Record = {"fingerprint": policy.fingerprint, "k": policy.k}
    for name, ages in (("good", (15, 15, 35, 35, 55, 55)), ("false", (15, 15, 35, 35, 55, 56))):
        released.write_text("".join(f'{{"age":{age}}}\n' for age in ages), encoding="utf-8")
        verdict = verify(policy, original=str(original), released=str(released), evidence=str(evidence))
        found[name] = [verdict.exit_code, verdict.verified]
    return found
