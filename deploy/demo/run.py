"""The demo: real personal records go through Kafka and two workers, and one worker is killed on the way.

The story is on standard error; ``-v`` adds each check of the verdict. The last line of standard output is the summary
as one JSON object, which is also in ``build/demo/summary.json``. Exit code 0 only if the release is verified.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))

from waiting import progress_dots  # noqa: E402 - sys.path is set first

with progress_dots("demo: loading"):
    import fetch
    import measure
    import story
    import topics
    from shoal.pipeline import precompile
    from shoal.policy import Policy

BUILD = ROOT / "build" / "demo"
POLICY = ROOT / "deploy" / "demo" / "policy.yaml"
SHOAL = str(Path(sys.executable).with_name("shoal"))
PARTITIONS = 3
KINDS = ("input", "output", "quarantine", "clusters", "evidence")
WAIT_LIMIT_S = 120.0
"""Longest time for a worker to start or end, and longest time without a processed record (s); compiling not counted."""


@dataclass
class Demo:
    """One run of the demo: its topics and its workers."""

    bootstrap: str
    names: dict[str, str]
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    def environment(self, worker: str) -> dict[str, str]:
        """Return the environment of a worker: broker and topics; all other settings are in the policy."""
        named = {f"SHOAL_KAFKA__{kind.upper()}": topic for kind, topic in self.names.items()}
        return {
            **os.environ,
            **named,
            "SHOAL_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap,
            "SHOAL_KAFKA__GROUP": f"{self.names['input']}-shoal",
            "SHOAL_KAFKA__INSTANCE_ID": f"{self.names['input']}-{worker}",
            "SHOAL_KAFKA__SESSION_TIMEOUT_MS": "6000",
        }

    def start(self, worker: str, *extra: str) -> None:
        """Start a worker; its log goes to build/demo."""
        self.ports[worker] = free_port()
        http = f"127.0.0.1:{self.ports[worker]}"
        command = [SHOAL, "run", str(POLICY), "--from", "earliest", "--http", http, "--log", "json", *extra]
        with (BUILD / f"{worker}.log").open("ab") as log:
            self.workers[worker] = subprocess.Popen(
                command, env=self.environment(worker), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def stop_all(self) -> None:
        """Stop the workers that still run, by process id."""
        for process in self.workers.values():
            if process.poll() is None:
                process.terminate()
        for process in self.workers.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()

    async def wait_ready(self, worker: str) -> None:
        """Wait until a worker is a member of the group, has restored its partitions and reaches the broker."""
        limit = WaitLimit()
        while not await asyncio.to_thread(is_ready, self.ports[worker]):
            if self.workers[worker].poll() is not None or await limit.is_exceeded(self.ports[worker]):
                raise SystemExit(f"demo: worker {worker} did not become ready; see {BUILD}/{worker}.log")

    async def wait_ended(self, worker: str) -> None:
        """Wait until a worker has ended without an error."""
        limit = WaitLimit()
        while (code := self.workers[worker].poll()) is None:
            if await limit.is_exceeded(self.ports[worker]):
                raise SystemExit(f"demo: worker {worker} did not end; see {BUILD}/{worker}.log")
        if code != 0:
            raise SystemExit(f"demo: worker {worker} ended with an error; see {BUILD}/{worker}.log")

    async def wait_accounted(self, least: int) -> int:
        """Wait until at least ``least`` records are published or quarantined, and return their number."""
        done, limit = -1, WaitLimit()
        while done < least:
            found = await topics.count(self.bootstrap, PARTITIONS, self.names["output"], self.names["quarantine"])
            if found > done:
                done, limit = found, WaitLimit()
            ended = self.workers["one"].poll() not in {None, -signal.SIGKILL}
            if ended or await limit.is_exceeded(self.ports["one"]):
                raise SystemExit(f"demo: only {done} of {least} records were processed; see {BUILD}/*.log")
        return done


@dataclass
class WaitLimit:
    """Time spent waiting, without the time in which a worker compiles."""

    waited_s: float = 0.0

    async def is_exceeded(self, port: int) -> bool:
        """Sleep briefly, and return whether the total time without compiling is above the limit."""
        began = time.monotonic()
        await asyncio.sleep(0.2)
        if not await asyncio.to_thread(is_compiling, port):
            self.waited_s += time.monotonic() - began
        return self.waited_s > WAIT_LIMIT_S


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def page(port: int, name: str) -> str | None:
    """Return a page of a worker's HTTP server, or None without a response of status 200."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return None


def is_ready(port: int) -> bool:
    """Return whether the readiness probe of a worker succeeds."""
    return page(port, "readyz") is not None


def is_compiling(port: int) -> bool:
    """Return whether a worker still compiles: it serves metrics, but not yet that of its policy."""
    metrics = page(port, "metrics")
    return metrics is not None and "shoal_policy_info{" not in metrics


async def show(demo: Demo, records: list[dict[str, Any]], held_at_most: int) -> float:
    """Send the records, kill a worker, and wait until all records are published; return the duration (s)."""
    partition_of = [zlib.crc32(str(record["nr"]).encode()) % PARTITIONS for record in records]
    with progress_dots("Two workers start. Then records come in, and the workers publish clusters of them."):
        for name in ("one", "two"):
            demo.start(name)
        for name in ("one", "two"):
            await demo.wait_ready(name)
        began = time.monotonic()
        producing = asyncio.create_task(topics.produce(demo.bootstrap, demo.names["input"], records, partition_of))
        done = await demo.wait_accounted(len(records) // 3)
    story.progress(done, len(records))
    demo.workers["one"].kill()
    demo.workers["one"].wait()
    with progress_dots("Worker one is killed with SIGKILL in the middle of its work, and started again."):
        demo.start("one")
        await producing
        await demo.wait_ready("one")
        # The rest is held: at most delta records of each partition wait for the records of more people.
        done = await demo.wait_accounted(len(records) - PARTITIONS * held_at_most + 1)
    story.progress(done, len(records))
    with progress_dots("Both workers are stopped. A last one releases the records that still wait (--drain)."):
        for name in ("one", "two"):
            demo.workers[name].send_signal(signal.SIGTERM)
        for name in ("one", "two"):
            await demo.wait_ended(name)
        demo.start("last", "--drain")
        await demo.wait_ended("last")
    return time.monotonic() - began


async def judge(demo: Demo, policy: Policy, elapsed_s: float, *, verbose: bool) -> dict[str, Any]:
    """Read the topics, run `shoal verify`, and compute the figures."""
    with progress_dots("Now `shoal verify`, which shares no arithmetic with the workers, checks the topics."):
        lines = {kind: await topics.read(demo.bootstrap, topic, PARTITIONS) for kind, topic in demo.names.items()}
        files = {kind: BUILD / f"{kind}.jsonl" for kind in KINDS}
        for kind in KINDS:
            topics.export(lines[kind], files[kind], kind=kind)
        verdict = BUILD / "verdict.json"
        verdict.unlink(missing_ok=True)
        command = [SHOAL, "verify", str(POLICY), "--original", str(files["input"]), "--released", str(files["output"])]
        command += ["--evidence", str(files["evidence"]), "--quarantine", str(files["quarantine"]), "--complete"]
        command += ["--json", str(verdict)]
        result = await asyncio.to_thread(subprocess.run, command, check=False, capture_output=True, text=True)
    if not verdict.exists():
        raise SystemExit(f"demo: there is no verdict\n{result.stdout}{result.stderr}")
    figures = measure.summary(policy, lines["input"], lines["output"], lines["quarantine"], lines["evidence"])
    figures |= {"elapsed_s": elapsed_s, "records_per_s": len(lines["input"]) / elapsed_s}
    judged = json.loads(verdict.read_text(encoding="utf-8"))
    # The last worker has drained the partitions, so nothing may be held.
    figures |= {"verified": result.returncode == 0 and judged["counts"]["held"] == 0}
    story.compare(policy, lines)
    story.verdict(judged, figures)
    if verbose or not figures["verified"]:
        story.say(result.stdout.rstrip() + result.stderr)
    return figures


def main() -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-v", "--verbose", action="store_true", help="show each check of the judge")
    verbose = parser.parse_args().verbose
    bootstrap = os.environ.get("SHOAL_KAFKA__BOOTSTRAP_SERVERS") or os.environ.get("SHOAL_TEST_BROKER")
    if not bootstrap:
        raise SystemExit("demo: no broker; run it with 'make demo'")
    BUILD.mkdir(parents=True, exist_ok=True)
    for log in BUILD.glob("*.log"):
        log.unlink()
    run = uuid.uuid4().hex[:8]
    demo = Demo(bootstrap, {kind: f"wages-{run}-{kind}" for kind in KINDS})
    policy = Policy.load(POLICY)
    with progress_dots("demo: pip fetches the records, once"):
        records = list(fetch.records())
    with progress_dots("demo: compiling, once"):
        precompile(policy)
    story.beginning(records, PARTITIONS, policy.k)
    try:
        asyncio.run(topics.create(bootstrap, demo.names.values(), PARTITIONS))
        elapsed_s = asyncio.run(show(demo, records, policy.require_stream().delta + 1))
        figures = asyncio.run(judge(demo, policy, elapsed_s, verbose=verbose))
    finally:
        demo.stop_all()
    story.end(verbose=verbose)
    (BUILD / "summary.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures), flush=True)
    return 0 if figures["verified"] else 1


if __name__ == "__main__":
    sys.exit(main())
