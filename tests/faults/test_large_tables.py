"""A million records through `shoal batch`: in bounded memory, and whole or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.commands import without_notice

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

RECORDS = 1_000_000
MOST_BYTES = 1.5 * 2**30
NAMES = "abcdefghij"
WORDS = ["north", "south", "east", "west"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine numbers and a word, a million times."""
    path = tmp_path_factory.mktemp("large") / "large.csv"
    draw = np.random.default_rng(1)
    with path.open("w") as file:
        file.write(",".join(NAMES) + "\n")
        for _ in range(0, RECORDS, 100_000):
            values, words = draw.random((100_000, 9)), draw.integers(0, 4, 100_000)
            file.writelines(
                f"{','.join(f'{value:.6f}' for value in row)},{WORDS[word]}\n"
                for row, word in zip(values.tolist(), words.tolist(), strict=True)
            )
    return path


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    attributes = {name: {"role": "quasi_identifier"} for name in NAMES[:4]}
    attributes |= {name: {"role": "confidential", "type": "number"} for name in NAMES[4:9]}
    attributes["j"] = {"role": "confidential", "type": "string"}
    path = tmp_path / "policy.yaml"
    path.write_text(json.dumps({"attributes": attributes, "subject": "every_record", "privacy": {"k": 10}}))
    return path


def run(policy: Path, source: Path, out: Path) -> tuple[subprocess.CompletedProcess[bytes], float]:
    """Run it; return how it ended and the most bytes it held at once."""
    more = ["--summary", str(out.with_suffix(".json"))]
    command = [sys.executable, "-m", "shoal.cli", "batch", str(policy), "-i", str(source), "-o", str(out), *more]
    measured = (
        "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:], check=False); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(done.returncode)"
    )
    done = subprocess.run([sys.executable, "-c", measured, *command], capture_output=True, timeout=1700, check=False)
    return done, float(done.stdout.split()[-1]) * (1 if sys.platform == "darwin" else 1024)


def lines_of(path: Path) -> Iterator[str]:
    with path.open() as file:
        yield from file


def test_a_million_records_are_released_in_bounded_memory(table: Path, policy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    done, most = run(policy, table, out)
    assert done.returncode == 0, done.stderr
    assert without_notice(done.stderr).startswith(b"shoal: 1,000,000 in, 1,000,000 out, 0 suppressed, 0 refused, ")
    assert most <= MOST_BYTES
    assert sum(1 for _ in lines_of(out)) == RECORDS + 1
    summary = json.loads(out.with_suffix(".json").read_text())
    assert summary["released"] == RECORDS
    assert summary["cluster_size"]["min"] >= 10


def test_one_invalid_line_in_a_million_is_reported_and_nothing_is_written(
    table: Path, policy: Path, tmp_path: Path
) -> None:
    broken, out = tmp_path / "broken.csv", tmp_path / "out.csv"
    with broken.open("w") as file:
        for number, line in enumerate(lines_of(table), 1):
            file.write("0.5,oops" + line[line.index(",", 9) :] if number == 777_777 else line)
    done, most = run(policy, broken, out)
    assert done.returncode == 2
    assert b"broken.csv, line 777777, column 2 (b): not a finite number" in done.stderr
    assert b"oops" not in done.stderr
    assert most <= MOST_BYTES
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.csv", "policy.yaml"]
