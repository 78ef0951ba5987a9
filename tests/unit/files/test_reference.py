"""`shoal reference`: a sample in, the file of a reference out, which the policy then accepts."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from shoal.policy import Policy
from support.commands import run_command

pytestmark = pytest.mark.unit

POLICY = """\
attributes:
  id: {role: identifier, subject: true, normalize: []}
  age: {role: quasi_identifier, bounds: [0, 110], integer: true}
  ill: {role: confidential, type: string, protect: true, reference: ill.csv}
  pay: {role: confidential, type: number}
privacy: {k: 3, t: 0.4}
stream: {delta: 20}
"""
REFERENCE = "value,share\n,0.1000\ncold,0.3000\nflu,0.6000\n"


def records() -> list[dict[str, object]]:
    values = ["flu"] * 18 + ["cold"] * 9 + [""] * 3 + ["canary"] * 2
    return [{"id": f"p{n}", "age": 40 + n, "ill": ill, "pay": n * 100} for n, ill in enumerate(values)]


def as_csv(rows: list[dict[str, object]]) -> str:
    return "id,age,ill,pay\n" + "".join(f"{r['id']},{r['age']},{r['ill']},{r['pay']}\n" for r in rows)


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return str(path)


@pytest.mark.parametrize("name", ["sample.csv", "sample.jsonl", "sample.parquet", "-"])
def test_the_policy_accepts_what_was_written(name: str, policy: str, tmp_path: Path) -> None:
    assert run_command("check", policy).returncode == 2, "the reference does not exist yet"
    (tmp_path / "sample.csv").write_text(as_csv(records()))
    (tmp_path / "sample.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records()))
    parquet.write_table(pa.Table.from_pylist(records()), tmp_path / "sample.parquet")
    words = ["-i", name, "-o", "ill.csv", *(["--format", "csv"] if name == "-" else [])]
    done = run_command("reference", policy, *words, stdin=as_csv(records()).encode(), folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"fewer_than=3" in done.stderr
    assert b"canary" not in done.stderr
    assert (tmp_path / "ill.csv").read_text() == REFERENCE
    reference = Policy.load(policy).confidential[0].reference
    assert reference is not None
    assert dict(zip(reference.texts, reference.shares, strict=True)) == {None: 0.1, "cold": 0.3, "flu": 0.6}


def test_an_attribute_can_be_named(policy: str) -> None:
    sample = as_csv(records()).encode()
    done = run_command("reference", policy, "--attribute", "pay", "--format", "csv", stdin=sample)
    assert done.returncode == 0
    assert [line.split(",")[0] for line in done.stdout.decode().splitlines()] == [
        *("value", "0", "800", "1500", "2000", "2800")
    ]


def test_records_that_the_policy_rejects_are_told_and_not_counted(policy: str) -> None:
    wrong = "p90,old,canary,1\n" * 5 + ",40,canary,1\n"
    done = run_command("reference", policy, "--format", "csv", stdin=(as_csv(records()) + wrong).encode())
    assert (done.returncode, done.stdout.decode()) == (0, REFERENCE)
    assert b"records=6" in done.stderr
    assert b"age: not a finite number" in done.stderr
    assert b"canary" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-i", "sample.csv", "--attribute", "age"], "age: no confidential attribute; give one of: ill, pay"),
        (["-i", "sample.csv", "-o", "sample.csv"], "sample.csv: named twice"),
        (["-i", "sample.csv", "-o", "policy.yaml"], "policy.yaml: named twice"),
        (["-i", "few.csv"], "attributes.ill: fewer than two values have 3 subjects or more; give a larger sample"),
        (["-i", "sample.csv", "-o", "absent/ill.csv"], "absent/ill.csv: cannot be written"),
        (["-i", "-"], "add --format csv"),
    ],
)
def test_errors_are_plain_and_nothing_is_written(arguments: list[str], words: str, policy: str, tmp_path: Path) -> None:
    (tmp_path / "sample.csv").write_text(as_csv(records()))
    (tmp_path / "few.csv").write_text(as_csv(records()[:6]))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = run_command("reference", Path(policy).name, *arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert words in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


SEVERAL = POLICY.replace("protect: true, reference: ill.csv}", "protect: true}").replace(
    "number}", "number, protect: true}"
)
WITHOUT = "attributes: {age: {role: quasi_identifier, bounds: [0, 9]}}\nsubject: every_record\nprivacy: {k: 3}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SEVERAL, "--attribute: missing; the policy protects several: ill, pay"),
        (WITHOUT, "no confidential attribute"),
        (POLICY.replace("k: 3", "k: 1").replace("ill.csv", "3"), "privacy.k"),
    ],
)
def test_a_policy_without_one_attribute_to_count_is_refused_and_so_are_its_other_faults(
    text: str, words: str, policy: str
) -> None:
    Path(policy).write_text(text)
    done = run_command("reference", policy, "--format", "csv", stdin=b"")
    assert done.returncode == 2
    assert words in done.stderr.decode()
    assert "attributes.ill.reference" not in done.stderr.decode()
