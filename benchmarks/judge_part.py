"""What `shoal verify` needs for a record: bytes, and processor time beside that of `shoal pipe`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from adult_pipe import SHOAL
from part import Limit, Part

__all__ = ["judge_part"]

FEW, MANY = 200_000, 600_000
MOST_BYTES = 250
"""Limit: by so many bytes the largest resident memory grows for each further record."""
MOST_OF_PIPE = 2.0
"""Limit: processor time of a further record, of that of `shoal pipe`."""
_QUASI = {"role": "quasi_identifier", "scale": "numeric"}
POLICY = {
    "attributes": {
        "id": {"role": "identifier", "subject": True, "type": "integer"},
        "age": {**_QUASI, "bounds": [0, 120]},
        "income": {**_QUASI, "bounds": [0, 500_000]},
        "bmi": {**_QUASI, "bounds": [5, 60], "resolution": 0.1},
        "job": {**_QUASI, "scale": "nominal"},
        "ill": {"role": "confidential", "scale": "nominal"},
    },
    "privacy": {"k": 10},
    "stream": {"delta": 200},
}


class Run(NamedTuple):
    """What a command used: processor seconds, and most resident bytes."""

    cpu_s: float
    resident: int


class Judged(NamedTuple):
    """Further bytes and µs of a further record by `shoal verify`, and µs by `shoal pipe`."""

    form: str
    used: float
    verify_us: float
    pipe_us: float


def _records(count: int) -> Iterator[dict[str, object]]:
    draw = np.random.default_rng(1)
    shares = 1 / np.arange(1, 401)
    columns = {
        "age": draw.integers(1, 100, count),
        "income": draw.lognormal(10, 0.6, count).astype(np.int64).clip(0, 500_000),
        "bmi": draw.normal(26, 4, count).round(1).clip(5, 60),
        "job": np.char.add("j", draw.choice(400, count, p=shares / shares.sum()).astype(str)),
        "ill": draw.choice(list("abcdefgh"), count),
    }
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    yield from ({"id": place, **dict(zip(columns, row, strict=True))} for place, row in enumerate(rows))


_LAUNCHER = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
sys.exit(code)
"""
"""Starts a command from a small process: the resident memory of a process counts that of the one that starts it."""


def _run(*arguments: str | Path) -> Run:
    command = [sys.executable, "-c", _LAUNCHER, SHOAL, *map(str, arguments)]
    process = subprocess.run(command, check=False, capture_output=True, text=True)
    if process.returncode:
        raise SystemExit(f"bench: shoal {arguments[0]} returned {process.returncode}")
    cpu_s, resident = process.stdout.split()
    return Run(float(cpu_s), int(resident) * 1024)


def _both(folder: Path, form: str, count: int) -> tuple[Run, Run]:
    """Run `shoal pipe` and `shoal verify` on so many records."""
    policy, evidence = folder / "policy.json", folder / "evidence.jsonl"
    original, released = folder / f"original.{form}", folder / f"released.{form}"
    policy.write_text(json.dumps(POLICY), encoding="utf-8")
    _run("warm", policy)  # so that no run compiles
    with original.open("w", encoding="utf-8") as file:
        for place, record in enumerate(_records(count)):
            if form == "csv" and not place:
                print(*record, sep=",", file=file)
            print(json.dumps(record) if form == "jsonl" else ",".join(map(str, record.values())), file=file)
    piped = _run("pipe", policy, "-i", original, "-o", released, "--evidence", evidence)
    return piped, _run("verify", policy, "--original", original, "--released", released, "--evidence", evidence)


def measure_judge() -> list[Judged]:
    """Measure both forms. The slope between two lengths leaves out the start of a process."""
    found = []
    for form in ("jsonl", "csv"):
        with tempfile.TemporaryDirectory() as folder:
            (few, fewer), (many, more) = (_both(Path(folder), form, count) for count in (FEW, MANY))
        further = MANY - FEW
        used = (more.resident - fewer.resident) / further
        found.append(
            Judged(form, used, *(1e6 * cpu / further for cpu in (more.cpu_s - fewer.cpu_s, many.cpu_s - few.cpu_s)))
        )
        print("judge: {}: {:.0f} bytes, {:.1f} µs, pipe {:.1f} µs".format(*found[-1]), file=sys.stderr)
    return found


def judge_part() -> Part:
    """Memory and processor time of the judge."""
    found = measure_judge()
    lines = [
        "## Memory and processor time of `shoal verify`",
        "",
        f"What a further record needs, between {FEW:,} and {MANY:,} records of six fields (k = 10, δ = 200), with",
        "evidence: resident memory, and processor time beside that of `shoal pipe` on the same records.",
        "",
        "| form | bytes | verify, µs | pipe, µs |",
        "|---|---|---|---|",
        *(f"| {one.form} | {one.used:.0f} | {one.verify_us:.1f} | {one.pipe_us:.1f} |" for one in found),
        "",
        f"Limits: {MOST_BYTES} bytes, and {MOST_OF_PIPE:g} times the time of `shoal pipe`. A field that is published",
        "unchanged and differs in every record needs its texts in memory besides.",
        "",
    ]
    used = [Limit(f"verify, {one.form}: bytes a record", one.used, MOST_BYTES, at_most=True) for one in found]
    times = [
        Limit(f"verify, {one.form}: processor time, of pipe's", one.verify_us / one.pipe_us, MOST_OF_PIPE, at_most=True)
        for one in found
    ]
    return Part(lines, [*used, *times])


if __name__ == "__main__":
    measure_judge()
