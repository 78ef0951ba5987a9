"""A million records through `shoal batch` in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.commands import without_notice

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

RECORDS = 1_000_000
MOST_BYTES = 1.5 * 2**30
NAMES = "abcdefghij"
WORDS = ["north", "south", "east", "west"]


def write_table(path: Path) -> None:
    """Nine numbers and a word, a million times."""
    draw = np.random.default_rng(1)
    with path.open("w") as file:
        file.write(",".join(NAMES) + "\n")
        for _ in range(0, RECORDS, 100_000):
            values, words = draw.random((100_000, 9)), draw.integers(0, 4, 100_000)
            file.writelines(
                f"{','.join(f'{value:.6f}' for value in row)},{WORDS[word]}\n"
                for row, word in zip(values.tolist(), words.tolist(), strict=True)
            )


def test_a_million_records_are_released_in_bounded_memory(tmp_path: Path) -> None:
    attributes = {name: {"role": "quasi_identifier"} for name in NAMES[:4]}
    attributes |= {name: {"role": "confidential", "type": "number"} for name in NAMES[4:9]}
    attributes["j"] = {"role": "confidential", "type": "string"}
    policy, source, out, summary = (tmp_path / name for name in ("policy.yaml", "in.csv", "out.csv", "summary.json"))
    policy.write_text(json.dumps({"attributes": attributes, "subject": "every_record", "privacy": {"k": 10}}))
    write_table(source)
    files = ["-i", str(source), "-o", str(out), "--summary", str(summary)]
    measured = (
        "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:], check=False); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(done.returncode)"
    )
    command = [sys.executable, "-c", measured, sys.executable, "-m", "shoal.cli", "batch", str(policy), *files]
    done = subprocess.run(command, capture_output=True, timeout=1700, check=False)
    assert done.returncode == 0, done.stderr
    assert without_notice(done.stderr).startswith(b"shoal: 1,000,000 in, 1,000,000 out, 0 suppressed, 0 refused, ")
    assert float(done.stdout.split()[-1]) * (1 if sys.platform == "darwin" else 1024) <= MOST_BYTES
    with out.open() as file:
        assert sum(1 for _ in file) == RECORDS + 1
    found = json.loads(summary.read_text())
    assert found["released"] == RECORDS
    assert found["cluster_size"]["min"] >= 10
