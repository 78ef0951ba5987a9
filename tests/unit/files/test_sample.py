"""`shoal check -i`: what the policy loses of the beginning of a file; nothing is written, and no value is shown."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shoal.cli import check
from shoal.files import sample
from shoal.policy import Policy
from support.commands import run_command

pytestmark = pytest.mark.unit

ATTRIBUTES = {
    "who": {"role": "identifier", "subject": True, "normalize": []},
    "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True},
    "shop": {"role": "quasi_identifier", "scale": "nominal", "weight": 0.01},
}


@pytest.fixture(params=["stream", "table"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a folder with a policy and 300 records, of which three are refused."""
    document: dict[str, Any] = {"attributes": ATTRIBUTES, "privacy": {"k": 5}}
    if request.param == "stream":
        document["stream"] = {"delta": 30, "max_delay_s": 5}
    (tmp_path / "policy.json").write_text(json.dumps(document))
    lines = [
        {"who": f"p{n}", "age": n * 37 % 90 if n % 100 else "xq7canary", "shop": f"xq7canary {n * 89 % 149}"}
        for n in range(300)
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def sampled(folder: Path, *options: str, stdin: bytes = b"") -> tuple[str, list[str], str]:
    """Return what `check` printed of the policy, the lines after it, and standard error."""
    ended = run_command("check", str(folder / "policy.json"), *options, stdin=stdin)
    assert ended.returncode == 0, ended.stderr
    policy, brace, lines = ended.stdout.decode().partition("\n}\n")
    return policy + brace, lines.splitlines(), re.sub(r"^\S+Z ", "", ended.stderr.decode(), flags=re.MULTILINE)


def test_a_sample_shows_counts_and_losses_after_the_policy(folder: Path) -> None:
    before = sorted(folder.iterdir())
    policy, lines, said = sampled(folder, "-i", str(folder / "in.jsonl"))
    plain, nothing, advice = sampled(folder)
    assert (policy, nothing, said) == (plain, [], advice)
    assert sorted(folder.iterdir()) == before, "nothing is written"
    limits = "delta 30 and k 5" if "delta" in plain else "k 5"
    first = "a larger delta, " if "delta" in plain else ""
    assert lines[0] == ("sample: 300 in, 297 out, 0 suppressed, 3 refused (3 of 300 invalid: age: not a finite number)")
    assert re.fullmatch(r"mean loss \d+ %", lines[1])
    assert re.fullmatch(r"shop [89]\d %", lines[2])
    assert re.fullmatch(r"age [\d.]+ %", lines[3])
    assert lines[4] == (
        f"shop: {limits} cannot keep its 149 values; what helps: {first}a smaller k, a larger weight, a taxonomy, "
        "or leave it out"
    )
    (remedy,) = lines[5:]
    assert remedy.startswith("3 of 300 invalid: age: not a finite number; a quasi-identifier must be a number; if the")
    assert "xq7canary" not in "".join([*lines, said])


def test_a_sample_is_what_a_run_loses(folder: Path) -> None:
    command = "pipe" if "stream" in json.loads((folder / "policy.json").read_text()) else "batch"
    good = [line for line in (folder / "in.jsonl").read_text().splitlines() if '"age": "' not in line]
    (folder / "good.jsonl").write_text("\n".join(good) + "\n")
    report = sample.run_sample(Policy.load(str(folder / "policy.json")), str(folder / "good.jsonl"), None, 20_000)
    names = [str(folder / name) for name in ("policy.json", "good.jsonl", "out.jsonl", "summary.json")]
    run_command(command, names[0], "-i", names[1], "-o", names[2], "--summary", names[3])
    assert report.loss.losses == json.loads(Path(names[3]).read_text())["loss"]


def test_the_first_rows_of_parquet_are_a_sample(tmp_path: Path) -> None:
    policy = Policy.from_mapping({"attributes": ATTRIBUTES, "privacy": {"k": 5}})
    rows = {"who": range(90), "age": [n if n != 7 else math.inf for n in range(90)], "shop": ["a", "b", "c"] * 30}
    pq.write_table(pa.table(rows), tmp_path / "in.parquet")
    report = sample.run_sample(policy, str(tmp_path / "in.parquet"), None, 40)
    assert (report.records_in, report.refusals.total) == (40, 1)
    blocks = sample.read_blocks(policy, str(tmp_path / "in.parquet"), None, 40)
    assert (blocks.records, blocks.refusals.total, blocks.is_cut) == (40, 1, True)


def test_a_pipe_needs_a_format(folder: Path) -> None:
    _, lines, _ = sampled(folder, "-i", "-", "--format", "jsonl", stdin=(folder / "in.jsonl").read_bytes())
    assert lines[0].startswith("sample: 300 in, 297 out,")
    ended = run_command("check", str(folder / "policy.json"), "-i", "-")
    assert ended.returncode == 2
    assert b"add --format csv or --format jsonl" in ended.stderr


def test_a_sample_has_the_first_records_only(folder: Path) -> None:
    for most, refused in ((201, 3), (200, 2)):
        with patch.object(check, "SAMPLE_RECORDS", most):
            _, lines, _ = sampled(folder, "-i", str(folder / "in.jsonl"))
        assert lines[0].startswith(f"sample: {most} in, {most - refused} out, 0 suppressed, {refused} refused")
    assert check.SAMPLE_RECORDS == 20_000


def test_a_sample_of_which_nothing_is_released_has_no_loss(folder: Path) -> None:
    lines = (folder / "in.jsonl").read_text().splitlines(keepends=True)
    (folder / "few.jsonl").write_text("".join(lines[1:4]))
    ended = run_command("check", str(folder / "policy.json"), "-i", str(folder / "few.jsonl"))
    if b"delta" in ended.stdout:
        assert ended.returncode == 0
        assert ended.stdout.decode().splitlines()[-3:] == [
            "sample: 3 in, 0 out, 3 suppressed, 0 refused",
            "mean loss: none, because no attribute has one",
            "the sample has no more records than delta 30: a longer one tells more",
        ]
    else:
        assert (ended.returncode, b"fewer than 5 different subjects" in ended.stderr) == (2, True)


def test_a_file_that_cannot_be_used_is_a_fault_after_the_policy(tmp_path: Path) -> None:
    document = {"attributes": {"age": {"role": "quasi_identifier"}}, "subject": "every_record", "privacy": {"k": 2}}
    (tmp_path / "policy.json").write_text(json.dumps(document))
    (tmp_path / "in.csv").write_text("age\n1\n2\n3e200\n")
    for name, words in (("none.jsonl", b"none.jsonl: cannot be read"), ("in.csv", b"field age: a number beyond")):
        ended = run_command("check", str(tmp_path / "policy.json"), "-i", str(tmp_path / name))
        assert ended.returncode == 2
        assert words in ended.stderr
        assert b"3e200" not in ended.stderr
        assert ended.stdout.endswith(b"}\n")
