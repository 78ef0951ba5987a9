"""All options together, from a file to a file: the judge finds nothing, and every record is accounted for."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shoal.audit import verify
from shoal.files import Files, run_pipe
from shoal.policy import Policy
from shoal.policy.schema import Document
from support.by_night import by_day

pytestmark = pytest.mark.property


def policy_of(k: int, delta: int, **privacy: Any) -> Policy:
    return Policy.from_document(
        Document.model_validate(
            {
                "attributes": {
                    "who": {"role": "identifier", "subject": True},
                    "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True},
                    "gain": {"role": "quasi_identifier", "bounds": [-1000, 100_000]},
                    "exact": {"role": "quasi_identifier", "bounds": [0.5, 7.25], "resolution": 0},
                    "note": {"role": "confidential", "type": "string"},
                },
                "privacy": {"k": k, **privacy},
                "stream": {"delta": delta},
            }
        )
    )


@settings(max_examples=by_day(15, 40))
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(0, 300),
    k=st.integers(3, 6),
    exponent=st.sampled_from([0.5, 1.0, 1.5]),
    per_subject=st.sampled_from([None, {"max": 1, "window": 20}, {"max": 3, "window": 100}]),
    populous=st.booleans(),
)
def test_the_judge_finds_nothing_wrong_with_what_the_options_let_out(
    seed: int,
    n: int,
    k: int,
    exponent: float,
    per_subject: dict[str, int] | None,
    populous: bool,  # noqa: FBT001
) -> None:
    random = np.random.default_rng(seed)
    weights = np.arange(1, 61) ** -exponent
    people = random.choice(60, n, p=weights / weights.sum()).tolist()
    gains = random.choice([0, 0, 0, 0, 1, 300, 5000, 1e6, -5000], n).tolist()
    records = [
        {"who": who, "age": age, "gain": gain, "exact": exact, "note": f"{number:03}"}
        for number, (who, age, gain, exact) in enumerate(
            zip(people, random.integers(0, 130, n).tolist(), gains, random.uniform(0, 8, n).tolist(), strict=True)
        )
    ]
    lines = [json.dumps(record) for record in records]
    lines[::17] = ["{}"] * len(lines[::17])
    delta = 30
    options = {"per_subject": per_subject, "min_population": 2 * k if populous else None}
    policy = policy_of(k, delta, **options)
    with TemporaryDirectory() as folder:
        names = {name: str(Path(folder) / f"{name}.jsonl") for name in ("in", "out", "evidence", "bad")}
        names["summary"] = str(Path(folder) / "summary.json")
        Path(names["in"]).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        run_pipe(
            policy,
            Files(
                source=names["in"],
                target=names["out"],
                evidence=names["evidence"],
                quarantine=names["bad"],
                summary=names["summary"],
            ),
        )
        if not lines:
            return
        verdict = verify(
            policy,
            names["in"],
            names["out"],
            names["evidence"],
            names["summary"],
            quarantine=names["bad"],
            complete=True,
        )
        summary = json.loads(Path(names["summary"]).read_text(encoding="utf-8"))
    assert verdict.outcome == "holds", verdict.text()
    parts = summary["released"], sum(summary["suppressed"].values()), sum(summary["quarantined"].values())
    assert sum(parts) == summary["records_in"] == n
    assert parts[2] == len(lines[::17])
