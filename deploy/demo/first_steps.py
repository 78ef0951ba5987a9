"""The first steps of a user, without an edit: init, check, tune, release, verify and report, on three samples.

They are Adult, a German table of a hospital, and a topic with nested messages. What each step writes is kept in
``build/first-steps``. The report on standard error has the duration of each step. Exit code 0 if all steps succeed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import time
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))

import patients  # noqa: E402 - sys.path is set first
import topics  # noqa: E402 - as above

BUILD = ROOT / "build" / "first-steps"
SHOAL = ROOT / ".venv" / "bin" / "shoal"
PARTITIONS = 2
ROWS = 3_000


class Step(NamedTuple):
    """A command that has ended: what it was, and how long it took (s)."""

    what: str
    seconds: float


class Steps:
    """Runs commands in a folder of their own, one after the other."""

    def __init__(self, name: str, bootstrap: str = "") -> None:
        self.name, self.folder, self.done = name, BUILD / name, list[Step]()
        self._environment = os.environ | ({"SHOAL_KAFKA__BOOTSTRAP_SERVERS": bootstrap} if bootstrap else {})
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def run(self, *words: str) -> None:
        """Run ``shoal`` with these words; its output is in a file with the name of the command."""
        began = time.monotonic()
        print(f"{self.name}: shoal {' '.join(words)}", file=sys.stderr, flush=True)
        with (self.folder / f"{words[0]}.out").open("wb") as out, (self.folder / f"{words[0]}.log").open("wb") as log:
            code = subprocess.run(
                [SHOAL, *words], cwd=self.folder, env=self._environment, stdout=out, stderr=log, check=False
            ).returncode
        self.done.append(Step(f"{self.name}: {words[0]}", time.monotonic() - began))
        if code:  # later steps need this one
            raise SystemExit(f"{(self.folder / f'{words[0]}.log').read_text()[-2000:]}\nfirst-steps: exit code {code}")

    def judge(self, original: str, released: str, *more: str) -> None:
        """Verify and report."""
        files = ("--original", original, "--released", released, *more)
        self.run("verify", "policy.yaml", *files)
        self.run("report", "policy.yaml", *files, "-o", "report.html", "--json", "report.json")


def released_as_stream(steps: Steps, file: str, subject: str) -> list[Step]:
    """Take all steps with a file."""
    steps.run("init", file, "-o", "policy.yaml", "--subject", subject)
    steps.run("check", "policy.yaml", "--text", "-i", file)
    steps.run("tune", "policy.yaml", "-i", file, "-o", "tune.html", "--json", "tune.json")
    steps.run("pipe", "policy.yaml", "-i", file, "-o", "released.csv", "--evidence", "evidence.jsonl")
    steps.judge(file, "released.csv", "--evidence", "evidence.jsonl")
    return steps.done


def adult() -> list[Step]:
    """A table that is released as a stream."""
    steps = Steps("adult")
    shutil.copy(ROOT / "tests" / "data" / "adult.csv.gz", steps.folder / "adult.csv.gz")
    return released_as_stream(steps, "adult.csv.gz", "every_record")


def hospital() -> list[Step]:
    """A German table: semicolons, decimal commas, cp1252, dates and missing values as people write them."""
    steps, draw = Steps("hospital"), random.Random(1)  # noqa: S311 - artificial records
    lines = ["Fallnummer;Patientennummer;Name;Geburtsdatum;PLZ;Größe;Kosten;Diagnose;Aufnahme"]
    for number in range(ROWS):
        born = f"{draw.randint(1, 28):02}.{draw.randint(1, 12):02}.{draw.randint(1930, 2010)}"
        admitted = f"{draw.randint(1, 28):02}.{draw.randint(1, 12):02}.{draw.randint(2023, 2025)}"
        height = "NA" if draw.random() < 0.03 else f"{draw.gauss(171, 9):.1f}".replace(".", ",")
        cost = f"{draw.lognormvariate(7, 1):,.2f}".translate(str.maketrans(",.", ".,"))
        place = f"{draw.choice(('01067', '01099', '20095', '20144', '80331', '80469'))}"
        illness = draw.choice(("I10", "E11.9", "J45.0", "F32.1", "M54.5"))
        who = f"P{draw.randrange(ROWS * 4 // 5):05}"
        lines.append(f"{100_000 + number};{who};Müller {number};{born};{place};{height};{cost};{illness};{admitted}")
    (steps.folder / "faelle.csv").write_bytes("\r\n".join(lines).encode("cp1252"))
    return released_as_stream(steps, "faelle.csv", "Patientennummer")


def visits(bootstrap: str) -> list[Step]:
    """A topic of nested messages, released to another topic."""
    steps, topic = Steps("visits", bootstrap), f"visits-{uuid.uuid4().hex[:8]}"
    messages = [message["after"] for message in patients.messages()]
    partition_of = [zlib.crc32(str(one["patient"]["id"]).encode()) % PARTITIONS for one in messages]
    names = {"input": topic} | {kind: f"{topic}.{kind}" for kind in ("anonymous", "quarantine", "evidence")}
    asyncio.run(_fill(bootstrap, names, messages, partition_of))
    steps.run("init", "--topic", topic, "-o", "policy.yaml", "--subject", "patient.id")
    (steps.folder / "sample.jsonl").write_text("".join(json.dumps(one) + "\n" for one in messages))
    steps.run("check", "policy.yaml", "--text", "-i", "sample.jsonl")
    steps.run("tune", "policy.yaml", "-i", "sample.jsonl", "-o", "tune.html", "--json", "tune.json")
    steps.run("run", "policy.yaml", "--from", "earliest", "--drain", "--http", "127.0.0.1:0")
    asyncio.run(_export(bootstrap, names, steps.folder))
    steps.judge("input.jsonl", "output.jsonl", "--evidence", "evidence.jsonl", "--quarantine", "quarantine.jsonl")
    return steps.done


async def _fill(bootstrap: str, names: dict[str, str], messages: Sequence[dict[str, object]], of: list[int]) -> None:
    await topics.create(bootstrap, names.values(), PARTITIONS)
    await topics.produce(bootstrap, names["input"], messages, of)


async def _export(bootstrap: str, names: dict[str, str], folder: Path) -> None:
    for kind, topic in names.items():
        lines = await topics.read(bootstrap, topic, PARTITIONS)
        name = "output" if kind == "anonymous" else kind
        topics.export(lines, folder / f"{name}.jsonl", kind=name)


def main() -> int:
    """Take all steps, print their durations, and return the exit code."""
    bootstrap = os.environ.get("SHOAL_KAFKA__BOOTSTRAP_SERVERS") or os.environ.get("SHOAL_TEST_BROKER")
    if not bootstrap:
        raise SystemExit("first-steps: no broker; run it with 'make first-steps'")
    steps = [*adult(), *hospital(), *visits(bootstrap)]
    for step in steps:
        print(f"{step.what:20} {step.seconds:6.1f} s", file=sys.stderr)
    print(f"all: {sum(step.seconds for step in steps):.0f} s; outputs in {BUILD.relative_to(ROOT)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
