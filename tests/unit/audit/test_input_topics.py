"""Evidence and quarantine of a service that reads several input topics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from oracle.naive_release import NaiveRelease, broken, load_policy, make_release
from shoal.audit import Verdict, verify
from shoal.errors import InputError
from support.commands import run_command
from support.judged_runs import write_lines

pytestmark = pytest.mark.unit

Lines = list[dict[str, Any]]
INVALID = 60
"""Offset of a record of each input that does not fit the policy."""


class TwoInputs:
    """The exports of two inputs and outputs, and the evidence and the quarantine of both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.evidence: Lines = []
        self.quarantine: Lines = []
        for seed, name in enumerate(("north", "south")):
            (folder / name).mkdir()
            made = make_release(folder / name, seed=seed)
            self._export(made, name)
            self.evidence += [line | {"topic": name} for line in made.evidence]
            self.quarantine.append({"topic": name, "partition": 0, "offset": INVALID, "reason": "invalid"})

    def _export(self, made: NaiveRelease, name: str) -> None:
        records = [*made.records, {}]
        inputs = [{"partition": 0, "offset": n, "value": json.dumps(record)} for n, record in enumerate(records)]
        write_lines(self.folder / f"{name}.in.jsonl", inputs)
        outputs = [{"partition": 0, "value": row} for rows in made.rows for row in rows]
        write_lines(self.folder / f"{name}.out.jsonl", outputs)

    def files(self, name: str) -> tuple[Path, Path, Path, Path]:
        evidence = write_lines(self.folder / "evidence.jsonl", self.evidence)
        quarantine = write_lines(self.folder / "quarantine.jsonl", self.quarantine)
        return self.folder / f"{name}.in.jsonl", self.folder / f"{name}.out.jsonl", evidence, quarantine

    def verify(self, name: str, input_topic: str | None = None) -> Verdict:
        original, released, evidence, quarantine = self.files(name)
        policy = load_policy(self.folder)
        return verify(policy, original, released, evidence, quarantine=quarantine, input_topic=input_topic)


@pytest.fixture
def inputs(tmp_path: Path) -> TwoInputs:
    return TwoInputs(tmp_path)


def test_each_input_is_judged_by_its_own_lines(inputs: TwoInputs) -> None:
    for name in ("north", "south"):
        verdict = inputs.verify(name, name)
        assert verdict.exit_code == 0, verdict.text()
    assert inputs.verify("north", "south").exit_code == 1
    inputs.evidence[0]["topic"] = "south"
    inputs.quarantine[0]["offset"] = inputs.evidence[1]["offsets"][0]
    assert {"references", "nothing_else"} <= broken(inputs.verify("north", "north"))
    assert "existing" not in broken(inputs.verify("north", "north"))
    assert "nothing_missing" in broken(inputs.verify("south", "south"))


def test_an_input_that_the_policy_does_not_have_is_refused(inputs: TwoInputs) -> None:
    original, released, evidence, quarantine = map(str, inputs.files("north"))
    load_policy(inputs.folder)
    path = inputs.folder / "policy.yaml"
    pairs = [{"input": name, "output": f"{name}.out"} for name in ("north", "south", "east")]
    path.write_text(f"{path.read_text()}\nkafka: {json.dumps({'topics': pairs})}\n")
    arguments = ["verify", str(path), "--original", original, "--released", released, "--evidence", evidence]
    arguments += ["--quarantine", quarantine, "--input-topic"]
    assert run_command(*arguments, "north").returncode == 0
    done = run_command(*arguments, "nroth")
    assert done.returncode == 2
    assert b"--input-topic: no input of kafka.topics has this name; give one of north, south, east" in done.stderr
    # An input of which nothing was released or refused has no lines.
    assert run_command(*arguments, "east").returncode == 1


def test_lines_of_several_inputs_need_the_name(inputs: TwoInputs) -> None:
    evidence = inputs.evidence
    inputs.evidence = [line for line in evidence if line["topic"] == "north"]
    with pytest.raises(InputError, match="several input topics"):
        inputs.verify("north")
    inputs.evidence, inputs.quarantine = evidence, inputs.quarantine[:1]
    with pytest.raises(InputError, match="several input topics"):
        inputs.verify("north")


def test_a_cluster_without_an_input_is_refused(inputs: TwoInputs) -> None:
    del inputs.evidence[3]["topic"]
    inputs.quarantine.pop()
    with pytest.raises(InputError, match="a cluster of the evidence names no input topic; leave --input-topic out"):
        inputs.verify("north", "north")
    inputs.evidence = [line for line in inputs.evidence if line.get("topic") != "south"]
    with pytest.raises(InputError, match="clusters with and without an input topic"):
        inputs.verify("north")
    for line in inputs.evidence:
        line.pop("topic", None)
    assert inputs.verify("north").exit_code == 0
    with pytest.raises(InputError, match="names no input topic"):
        inputs.verify("north", "north")


@pytest.mark.parametrize("topic", [None, 7, ["north"]])
def test_a_topic_is_a_text(inputs: TwoInputs, topic: object) -> None:
    inputs.evidence[3]["topic"] = topic
    with pytest.raises(InputError, match=r"evidence\.jsonl, line 4: topic must be a text"):
        inputs.verify("north", "north")


def test_a_cluster_of_another_policy_counts_for_its_own_input(inputs: TwoInputs) -> None:
    inputs.evidence[-1]["policy"] = "0" * 64
    assert inputs.verify("north", "north").exit_code == 0
    assert inputs.verify("south", "south").exit_code == 2
