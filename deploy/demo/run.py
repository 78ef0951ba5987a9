"""The demo: records go through Kafka and two workers, and one worker is killed on the way, twice.

The first half has a real table of wages, the second half artificial hospital visits: nested messages with dates, codes
and missing values. The report is on standard error; ``-v`` adds each check of the verdicts. The last line of standard
output is the summary of the first half as one JSON object, which is also in ``build/demo/summary.json``. Its field
``patients`` has the figures of the second half. Exit code 0 only if both releases are verified.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))

from waiting import progress_dots  # noqa: E402 - sys.path is set first

with progress_dots("demo: loading"):
    import fetch
    import measure
    import patients
    import patients_report
    import report
    import topics
    from outside import class_sizes
    from shoal.kernels.cache import mark_compiled
    from shoal.kernels.jit import with_compiled
    from shoal.policy import Policy
    from shoal.streams import precompile
    from workers import KINDS, PARTITIONS, SHOAL, Demo

BUILD = ROOT / "build" / "demo"
HERE = ROOT / "deploy" / "demo"


class Judged(NamedTuple):
    """A release that `shoal verify` has judged: all topics, the verdict, its text, and whether every check holds."""

    lines: dict[str, list[topics.Line]]
    verdict: dict[str, Any]
    text: str
    holds: bool


async def show(demo: Demo, records: Sequence[dict[str, Any]], keys: Sequence[str], held_at_most: int) -> float:
    """Send the records, kill a worker, and wait until all records are published; return the duration (s)."""
    partition_of = [zlib.crc32(key.encode()) % PARTITIONS for key in keys]
    await topics.create(demo.bootstrap, demo.names.values(), PARTITIONS)
    with progress_dots("Two workers start. Then records come in, and the workers publish clusters of them."):
        for name in ("one", "two"):
            demo.start(name)
        for name in ("one", "two"):
            await demo.wait_ready(name)
        began = time.monotonic()
        producing = asyncio.create_task(topics.produce(demo.bootstrap, demo.names["input"], records, partition_of))
        done = await demo.wait_accounted(len(records) // 3)
    report.progress(done, len(records))
    demo.workers["one"].kill()
    demo.workers["one"].wait()
    with progress_dots("Worker one is killed with SIGKILL in the middle of its work, and started again."):
        demo.start("one")
        await producing
        await demo.wait_ready("one")
        # The rest is held: at most delta records of each partition wait for the records of more people.
        done = await demo.wait_accounted(len(records) - PARTITIONS * held_at_most + 1)
    report.progress(done, len(records))
    with progress_dots("Both workers are stopped. A last one releases the records that still wait (--drain)."):
        for name in ("one", "two"):
            demo.workers[name].send_signal(signal.SIGTERM)
        for name in ("one", "two"):
            await demo.wait_ended(name)
        demo.start("last", "--drain")
        await demo.wait_ended("last")
    return time.monotonic() - began


async def judge(demo: Demo) -> Judged:
    """Read the topics and run `shoal verify` on them."""
    with progress_dots("Now `shoal verify`, which shares no arithmetic with the workers, checks the topics."):
        lines = {kind: await topics.read(demo.bootstrap, topic, PARTITIONS) for kind, topic in demo.names.items()}
        files = {kind: str(demo.folder / f"{kind}.jsonl") for kind in KINDS}
        for kind, file in files.items():
            topics.export(lines[kind], Path(file), kind=kind)
        verdict = demo.folder / "verdict.json"
        verdict.unlink(missing_ok=True)
        command = [SHOAL, "verify", str(demo.policy), "--original", files["input"], "--released", files["output"]]
        command += ["--evidence", files["evidence"], "--quarantine", files["quarantine"]]
        command += ["--json", str(verdict), "-v"]
        result = await asyncio.to_thread(subprocess.run, command, check=False, capture_output=True, text=True)
    if not verdict.exists():
        raise SystemExit(f"demo: there is no verdict\n{result.stdout}{result.stderr}")
    judged = json.loads(verdict.read_text(encoding="utf-8"))
    # The last worker has drained the partitions, so nothing may be held.
    holds = result.returncode == 0 and judged["counts"]["held"] == 0
    return Judged(lines, judged, result.stdout.rstrip() + result.stderr, holds)


def wages(bootstrap: str, *, verbose: bool) -> dict[str, Any]:
    """Run the first half and return its summary."""
    demo = _demo(bootstrap, HERE / "policy.yaml", BUILD, "wages")
    policy = Policy.load(demo.policy)
    with progress_dots("demo: pip fetches the records, once"):
        records = list(fetch.records())
    report.beginning(records, PARTITIONS, policy.k)
    keys = [str(record["nr"]) for record in records]
    try:
        elapsed_s = asyncio.run(show(demo, records, keys, policy.require_stream().delta + 1))
        found = asyncio.run(judge(demo))
    finally:
        demo.stop_all()
    lines = found.lines
    figures = measure.summary(policy, lines["input"], lines["output"], lines["quarantine"], lines["evidence"])
    figures |= {"elapsed_s": elapsed_s, "records_per_s": len(records) / elapsed_s, "verified": found.holds}
    report.compare(policy, lines)
    report.verdict(found.verdict, figures)
    if verbose or not found.holds:
        report.say(found.text)
    return figures


def visits(bootstrap: str, *, verbose: bool) -> dict[str, Any]:
    """Run the second half and return its figures."""
    demo = _demo(bootstrap, HERE / "patients.yaml", BUILD / "patients", "visits")
    policy = Policy.load(demo.policy)
    messages = patients.messages()
    patients_report.beginning(messages, policy.k)
    keys = [str(message["after"]["patient"]["id"]) for message in messages]
    try:
        elapsed_s = asyncio.run(show(demo, messages, keys, policy.require_stream().delta + 1))
        found = asyncio.run(judge(demo))
    finally:
        demo.stop_all()
    published = [line.text for line in found.lines["output"]]
    sizes = class_sizes(published)
    figures = {
        "records_in": len(messages),
        "released": len(published),
        "suppressed": len(found.lines["quarantine"]),
        "clusters": len(found.lines["evidence"]),
        "smallest_class": sizes[0],
        "elapsed_s": elapsed_s,
        "verified": found.holds and sizes[0] >= policy.k,
    }
    patients_report.compare(policy, found.lines)
    patients_report.verdict(found.verdict, figures, published, len(sizes))
    if verbose or not figures["verified"]:
        report.say(found.text)
    return figures


def _demo(bootstrap: str, policy: Path, folder: Path, topic: str) -> Demo:
    """Return a half of the demo with topics of its own and an empty folder for its logs."""
    folder.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        log.unlink()
    run = uuid.uuid4().hex[:8]
    return Demo(bootstrap, policy, folder, {kind: f"{topic}-{run}-{kind}" for kind in KINDS})


def main() -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-v", "--verbose", action="store_true", help="show each check of the judge")
    verbose = parser.parse_args().verbose
    bootstrap = os.environ.get("SHOAL_KAFKA__BOOTSTRAP_SERVERS") or os.environ.get("SHOAL_TEST_BROKER")
    if not bootstrap:
        raise SystemExit("demo: no broker; run it with 'make demo'")
    with progress_dots("demo: compiling, once"):
        for name in ("policy.yaml", "patients.yaml"):
            policy = Policy.load(HERE / name)
            with with_compiled():
                precompile(policy)
            mark_compiled(policy.fingerprint)
    figures = wages(bootstrap, verbose=verbose)
    second = visits(bootstrap, verbose=verbose)
    report.end(verbose=verbose)
    figures["verified"] = figures["verified"] and second["verified"]
    figures["patients"] = second
    (BUILD / "summary.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures), flush=True)
    return 0 if figures["verified"] else 1


if __name__ == "__main__":
    sys.exit(main())
