"""The demo: real personal records through a real Kafka and two workers, one of them killed half-way.

Prints what happens on standard error, and as the last line of standard output the summary as one JSON object,
which is also in ``build/demo/summary.json``. Exit code 0 only if the judge agrees.
"""

from __future__ import annotations

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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fetch
import measure
import topics
from shoal.policy import Policy

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "demo"
POLICY = ROOT / "deploy" / "demo" / "policy.yaml"
SHOAL = str(Path(sys.executable).with_name("shoal"))
PARTITIONS = 3
KINDS = ("input", "output", "quarantine", "clusters", "evidence")


def say(text: str) -> None:
    """Tell the reader what happens."""
    print(text, file=sys.stderr, flush=True)


@dataclass
class Demo:
    """One run: its topics, its environment and its two workers."""

    bootstrap: str
    names: dict[str, str]
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    def environment(self, worker: str) -> dict[str, str]:
        """Where the workers find broker and topics; everything else is in the policy."""
        named = {f"SHOAL_KAFKA__{kind.upper()}": topic for kind, topic in self.names.items()}
        return {
            **os.environ,
            **named,
            "SHOAL_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap,
            "SHOAL_KAFKA__GROUP": f"{self.names['input']}-shoal",
            "SHOAL_KAFKA__INSTANCE_ID": f"{self.names['input']}-{worker}",
            "SHOAL_KAFKA__SESSION_TIMEOUT_MS": "6000",
        }

    def start(self, worker: str, *extra: str) -> subprocess.Popen[bytes]:
        """Start a worker; its log goes to build/demo."""
        self.ports[worker] = free_port()
        http = f"127.0.0.1:{self.ports[worker]}"
        command = [SHOAL, "run", str(POLICY), "--from", "earliest", "--http", http, "--log", "json", *extra]
        with (BUILD / f"{worker}.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=self.environment(worker), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.workers[worker] = process
        return process

    def stop_all(self) -> None:
        """Stop what still runs, by process id."""
        for process in self.workers.values():
            if process.poll() is None:
                process.terminate()
        for process in self.workers.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()

    async def wait_ready(self, worker: str, seconds: float = 120) -> None:
        """Wait until a worker says that it is ready: a member, restored, the broker reached."""
        deadline = time.monotonic() + seconds
        while not await asyncio.to_thread(is_ready, self.ports[worker]):
            if time.monotonic() > deadline or self.workers[worker].poll() is not None:
                raise SystemExit(f"demo: worker {worker} did not become ready; see {BUILD}/{worker}.log")
            await asyncio.sleep(0.2)

    async def resolved(self) -> int:
        """Records that a reader of committed data can account for."""
        return await topics.count(self.bootstrap, PARTITIONS, self.names["output"], self.names["quarantine"])

    async def wait_for(self, what: str, is_so: Callable[[int], bool], seconds: float = 60) -> int:
        """Show progress until the number of accounted records is as wished."""
        deadline = time.monotonic() + seconds
        while True:
            done = await self.resolved()
            say(f"  {done:5d} records accounted for")
            if is_so(done):
                return done
            if time.monotonic() > deadline or self.workers["one"].poll() not in {None, -signal.SIGKILL}:
                raise SystemExit(f"demo: {what} did not happen; see {BUILD}/*.log")
            await asyncio.sleep(0.5)


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def is_ready(port: int) -> bool:
    """Ask a worker's readiness probe."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


async def show(demo: Demo, records: list[dict[str, Any]], held_at_most: int) -> float:
    """Feed the topic, kill a worker, let the rest finish; return how long it took (s)."""
    home = [zlib.crc32(str(record["nr"]).encode()) % PARTITIONS for record in records]
    say(
        f"two workers, {PARTITIONS} partitions, {len(records)} person-years of {len({r['nr'] for r in records})} people"
    )
    for name in ("one", "two"):
        demo.start(name)
    for name in ("one", "two"):
        await demo.wait_ready(name)
    began = time.monotonic()
    producing = asyncio.create_task(topics.produce(demo.bootstrap, demo.names["input"], records, home))
    await demo.wait_for("the first part", lambda done: done > len(records) * 0.3)
    say("worker one is killed with SIGKILL, in the middle of its work, and started again")
    demo.workers["one"].kill()
    demo.workers["one"].wait()
    demo.start("one")
    await producing
    await demo.wait_ready("one")
    # What is left is held: fewer than delta records a partition, which wait for company.
    await demo.wait_for("the rest", lambda done: done > len(records) - PARTITIONS * held_at_most)
    say("both workers stop; a last one releases what is still held (--drain)")
    for name in ("one", "two"):
        demo.workers[name].send_signal(signal.SIGTERM)
    codes = [demo.workers[name].wait(10) for name in ("one", "two")]
    drain = demo.start("last", "--drain")
    if await asyncio.to_thread(drain.wait, 60) != 0 or any(codes):
        raise SystemExit(f"demo: a worker ended with an error; see {BUILD}/*.log")
    return time.monotonic() - began


async def judge(demo: Demo, policy: Policy, elapsed_s: float) -> dict[str, Any]:
    """Read the topics from outside, call the judge, compute the figures."""
    lines = {kind: await topics.read(demo.bootstrap, topic, PARTITIONS) for kind, topic in demo.names.items()}
    files = {kind: BUILD / f"{kind}.jsonl" for kind in KINDS}
    for kind in KINDS:
        topics.export(lines[kind], files[kind], kind=kind)
    verdict = BUILD / "verdict.json"
    command = [SHOAL, "verify", str(POLICY), "--original", str(files["input"]), "--released", str(files["output"])]
    command += ["--evidence", str(files["evidence"]), "--quarantine", str(files["quarantine"]), "--complete"]
    command += ["--json", str(verdict)]
    said = await asyncio.to_thread(subprocess.run, command, check=False, capture_output=True, text=True)
    say("\nthe judge (shoal verify), from the topics alone:\n" + said.stdout + said.stderr)
    compare(policy, lines)
    figures = measure.summary(policy, lines["input"], lines["output"], lines["quarantine"], lines["evidence"])
    figures |= {"elapsed_s": elapsed_s, "records_per_s": len(lines["input"]) / elapsed_s}
    return figures | {"verified": said.returncode == 0}


def compare(policy: Policy, lines: dict[str, list[topics.Line]]) -> None:
    """Show one cluster's records before and after, side by side."""
    about = json.loads(lines["evidence"][0].text)
    members = {(about["partition"], offset) for offset in about["offsets"]}
    before = [json.loads(line.text) for line in lines["input"] if (line.partition, line.offset) in members]
    after = [json.loads(line.text) for line in lines["output"] if line.partition == about["partition"]]
    names = [attribute.name for attribute in policy.published]
    say("one cluster, before (order of arrival)" + " " * 24 + "after (order of bytes)")
    say("  ".join(f"{name:>10}" for name in names) + "   |" + "  ".join(f"{name:>10}" for name in names))
    of_cluster = _rows_of(about, lines, after)
    for left, right in zip(before, of_cluster, strict=True):
        say("  ".join(f"{left[n]!s:>10}" for n in names) + "   |" + "  ".join(f"{right[n]!s:>10}" for n in names))


def _rows_of(about: dict[str, Any], lines: dict[str, list[topics.Line]], after: list[dict[str, Any]]) -> list[Any]:
    """Published rows of a cluster: as many in a run as it has members, with the members' kept values."""
    size = len(about["offsets"])
    members = {(about["partition"], offset) for offset in about["offsets"]}
    kept = sorted(
        json.loads(line.text)["occupation"] for line in lines["input"] if (line.partition, line.offset) in members
    )
    for start in range(len(after) - size + 1):
        run = after[start : start + size]
        if sorted(row["occupation"] for row in run) == kept and len({row["lwage"] for row in run}) == 1:
            return run
    raise SystemExit("demo: a cluster is not in the output")


def main() -> int:
    """Run the demo and return its exit code."""
    bootstrap = os.environ.get("SHOAL_KAFKA__BOOTSTRAP_SERVERS") or os.environ.get("SHOAL_TEST_BROKER")
    if not bootstrap:
        raise SystemExit("demo: no broker; run it with 'make demo'")
    BUILD.mkdir(parents=True, exist_ok=True)
    for log in BUILD.glob("*.log"):
        log.unlink()
    run = uuid.uuid4().hex[:8]
    demo = Demo(bootstrap, {kind: f"wages-{run}-{kind}" for kind in KINDS})
    policy = Policy.load(POLICY)
    records = list(fetch.records())
    try:
        asyncio.run(topics.create(bootstrap, demo.names.values(), PARTITIONS))
        elapsed_s = asyncio.run(show(demo, records, policy.require_stream().delta + 1))
        figures = asyncio.run(judge(demo, policy, elapsed_s))
    finally:
        demo.stop_all()
    say(
        f"information loss {figures['information_loss']:.2f} %, moved {figures['displacement']['mean']:.1f} places on "
        f"average, {figures['records_per_s']:.0f} records/s with start-up, kill and restart"
    )
    (BUILD / "summary.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures), flush=True)
    return 0 if figures["verified"] else 1


if __name__ == "__main__":
    sys.exit(main())
