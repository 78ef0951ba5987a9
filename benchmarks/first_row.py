"""How long a worker takes until its first released row and until it is ready, with one broker or address at fault."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

from kafka_to_kafka import PARTITIONS, document, fill, messages
from part import Limit, Part
from worker_process import SHOAL, Service, load_average, start_program

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.cluster import NODES, Cluster, cluster, dropping_address
from support.kafka_broker import Wanted, create_topics

__all__ = ["first_row_part"]

COUNT, STEP_S, MOST_MORE_S = 30, 0.05, 5.0
PLAIN, SILENT, NAME = "none", "a silent address beside one that answers", "a name, the first address of which is dead"
PAUSED, KILLED = "one of three brokers paused", "one of three brokers killed"
CASES = (PLAIN, SILENT, NAME, PAUSED, KILLED)

PROGRAM = """
import socket, sys
from shoal_command import main
resolve = socket.getaddrinfo
def resolved(host, *more, **options):
    addresses = ("127.0.0.2", "127.0.0.1") if host == "kafka.test" else (host,)
    return [one for address in addresses for one in resolve(address, *more, **options)]
socket.getaddrinfo = resolved
sys.exit(main())
"""
"""`shoal` in a process in which a name has two addresses."""


@asynccontextmanager
async def _fault(case: str, brokers: Cluster, node: int) -> AsyncIterator[str]:
    """Yield the bootstrap addresses of a worker that starts under this fault."""
    addresses, (host, port) = brokers.bootstrap, brokers.bootstrap.split(",")[0].split(":")
    with ExitStack() as stack:
        if case == SILENT:
            silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            addresses = f"127.0.0.1:{silent.getsockname()[1]},{host}:{port}"
        elif case == NAME:
            stack.enter_context(dropping_address(int(port)))
            addresses = f"kafka.test:{port}"
        elif case == PAUSED:
            brokers.send(node, signal.SIGSTOP)
        elif case == KILLED:
            await brokers.end(node)
        yield addresses
    brokers.send(node, signal.SIGCONT)
    if brokers.is_gone(node):
        await brokers.start(node)
    await brokers.until_in_sync("__consumer_offsets", "__transaction_state")


async def _until_row(worker: Service) -> None:
    while True:
        if worker.port and (await worker.metrics()).total("shoal_records_total", outcome="released"):
            return
        await asyncio.sleep(STEP_S)


async def _measure(case: str, brokers: Cluster, node: int, folder: Path) -> tuple[float, float, float]:
    """Return the seconds until the first row and until ready, and the load."""
    topics = await create_topics(brokers.bootstrap, [Wanted(PARTITIONS), Wanted(PARTITIONS)])
    await fill(brokers.bootstrap, topics[0], [(value, 0) for value in messages(COUNT * PARTITIONS)])
    content = document(brokers.bootstrap, *topics) | {"privacy": {"k": 3}, "stream": {"delta": 10}}
    policy, log = folder / "policy.json", folder / f"{topics[0]}.log"
    policy.write_text(json.dumps(content), encoding="utf-8")
    await asyncio.to_thread(subprocess.run, [SHOAL, "warm", str(policy)], stderr=subprocess.DEVNULL, check=True)
    async with _fault(case, brokers, node) as addresses:
        began_s = time.monotonic()
        worker = start_program([sys.executable, "-c", PROGRAM], policy, log, bootstrap_servers=addresses)

        async def timed(waiting: Awaitable[None]) -> float:
            await waiting
            return time.monotonic() - began_s

        try:
            times = await asyncio.gather(timed(_until_row(worker)), timed(worker.until_ready()))
        finally:
            worker.process.kill()
            worker.process.wait()
    return (*times, load_average())


async def _rounds() -> dict[str, list[tuple[float, float, float]]]:
    found: dict[str, list[tuple[float, float, float]]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory() as home, cluster(Path(home, "kafka")) as brokers:
        await _measure(PLAIN, brokers, NODES[0], Path(home))  # the cluster makes its internal topics
        for node in NODES:
            for case, times in found.items():
                times.append(await _measure(case, brokers, node, Path(home)))
                print(f"first-row: {case}: {times[-1]}", file=sys.stderr, flush=True)
    return found


def first_row_part() -> Part:
    """Starts beside a silent broker or address."""
    found = {case: tuple(zip(*times, strict=True)) for case, times in asyncio.run(_rounds()).items()}
    least = {case: min(first_row_s) for case, (first_row_s, _, _) in found.items()}
    lines = [
        "## First row beside a silent broker",
        "",
        f"One worker, kernels compiled, {PARTITIONS} partitions of {COUNT} records (k = 3, δ = 10), three brokers.",
        "Seconds by the clock from the start of the process until a row is released, and until `/readyz` answers:",
        f"least and median of {len(NODES)} starts, each with another broker at fault. Another leads after 3 s here.",
        "",
        "| fault | first row, least | median | ready, least | median | load |",
        "|---|---|---|---|---|---|",
        *(
            f"| {case} | {min(one):.1f} | {median(one):.1f} | {min(two):.1f} | {median(two):.1f} | {median(load):.1f} |"
            for case, (one, two, load) in found.items()
        ),
        "",
        f"Limit of the least time until the first row: {MOST_MORE_S:.0f} s more than without a fault, and with a",
        "paused broker than with a killed one.",
        "",
    ]
    pairs = [
        (f"{one}, s more", least[one] - least[other])
        for one, other in ((SILENT, PLAIN), (NAME, PLAIN), (PAUSED, KILLED))
    ]
    return Part(lines, [Limit(name, more_s, MOST_MORE_S, at_most=True) for name, more_s in pairs])
