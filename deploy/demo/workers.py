"""The workers of the demo: processes of `shoal run`, their HTTP pages, and waiting for what they do."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import topics

__all__ = ["KINDS", "PARTITIONS", "SHOAL", "WAIT_LIMIT_S", "Demo", "WaitLimit"]

SHOAL = str(Path(sys.executable).with_name("shoal"))
PARTITIONS = 3
KINDS = ("input", "output", "quarantine", "clusters", "evidence")
WAIT_LIMIT_S = 120.0
"""Longest time for a worker to start or end, and longest time without a processed record (s)."""


@dataclass
class Demo:
    """One half of the demo: its policy, its topics and its workers.

    Attributes
    ----------
    bootstrap : str
        Bootstrap server of the Kafka cluster.
    policy : Path
        File of the policy.
    folder : Path
        Folder of the logs and of the exported topics.
    names : dict
        Name of each topic by its kind.
    """

    bootstrap: str
    policy: Path
    folder: Path
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
        """Start a worker; its log goes to the folder."""
        self.ports[worker] = free_port()
        http = f"127.0.0.1:{self.ports[worker]}"
        command = [SHOAL, "run", str(self.policy), "--from", "earliest", "--http", http, "--log", "json", *extra]
        with (self.folder / f"{worker}.log").open("ab") as log:
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
            if self.workers[worker].poll() is not None or await limit.is_exceeded():
                raise SystemExit(f"demo: worker {worker} did not become ready; see {self.folder}/{worker}.log")

    async def wait_ended(self, worker: str) -> None:
        """Wait until a worker has ended without an error."""
        limit = WaitLimit()
        while (code := self.workers[worker].poll()) is None:
            if await limit.is_exceeded():
                raise SystemExit(f"demo: worker {worker} did not end; see {self.folder}/{worker}.log")
        if code != 0:
            raise SystemExit(f"demo: worker {worker} ended with an error; see {self.folder}/{worker}.log")

    async def wait_accounted(self, least: int) -> int:
        """Wait until at least ``least`` records are published or quarantined, and return their number."""
        done, limit = -1, WaitLimit()
        while done < least:
            found = await topics.count(self.bootstrap, PARTITIONS, self.names["output"], self.names["quarantine"])
            if found > done:
                done, limit = found, WaitLimit()
            ended = self.workers["one"].poll() not in {None, -signal.SIGKILL}
            if ended or await limit.is_exceeded():
                raise SystemExit(f"demo: only {done} of {least} records were processed; see {self.folder}/*.log")
        return done


class WaitLimit:
    """The longest time spent waiting, from the creation of this object."""

    def __init__(self) -> None:
        self._end_s = time.monotonic() + WAIT_LIMIT_S

    async def is_exceeded(self) -> bool:
        """Sleep briefly, and return whether the time has passed."""
        await asyncio.sleep(0.2)
        return time.monotonic() > self._end_s


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
