"""The network is cut between workers and brokers, and between brokers: no worker ends, no record twice or lost.

Connections on loopback go through toxiproxy, which stops all data of some of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from support.cluster import NODES
from support.faulty_workers import Worker
from support.kafka_broker import load_local
from support.storms import Storm, storm
from support.tools import tool

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.deploy_tools,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("kernels"),
]

START_S = 10.0


@dataclass
class Network:
    """The proxies between workers and brokers, and between brokers."""

    address: str
    ports: dict[str, dict[int, int]]
    """Ports of the listeners of each broker by the name of the listener."""

    @property
    def workers_bootstrap(self) -> str:
        """Addresses of the brokers for workers, through proxies."""
        return ",".join(f"{_ip(0, node)}:{self.ports['WORKERS'][node]}" for node in NODES)

    def cut(self, *pairs: tuple[int, int]) -> None:
        """Stop all data between these pairs of source (0: workers and other clients) and broker, in both directions."""
        for name in self._names(pairs):
            for stream in ("upstream", "downstream"):
                toxic = {"name": f"cut-{stream}", "type": "timeout", "stream": stream, "attributes": {"timeout": 0}}
                self._ask("POST", f"/proxies/{name}/toxics", toxic)

    def mend(self, *pairs: tuple[int, int]) -> None:
        """Let data through again. Connections that were cut are closed."""
        for name in self._names(pairs):
            for stream in ("upstream", "downstream"):
                self._ask("DELETE", f"/proxies/{name}/toxics/cut-{stream}")

    def _names(self, pairs: Sequence[tuple[int, int]]) -> Iterator[str]:
        for source, node in pairs:
            for listener in ("WORKERS",) if source == 0 else ("BROKERS", "CONTROLLER"):
                yield f"{listener}-{source}-{node}"

    def connect(self, listener: str, source: int, node: int) -> None:
        """Make the proxy that a source uses for a listener of a broker."""
        port = self.ports[listener][node]
        asked = {
            "name": f"{listener}-{source}-{node}",
            "listen": f"{_ip(source, node)}:{port}",
            "upstream": f"127.0.0.1:{port}",
        }
        self._ask("POST", "/proxies", asked)

    def is_up(self) -> bool:
        try:
            self._ask("GET", "/proxies")
        except urllib.error.URLError:
            return False
        return True

    def _ask(self, method: str, path: str, body: Any = None) -> None:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}{path}", content, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - its scheme is above
            answer.read()


def _ip(source: int, node: int) -> str:
    """Address under which a source reaches a broker through its own proxy."""
    return f"127.0.{source + 1}.{node}"


@contextmanager
def network(folder: Path) -> Iterator[Network]:
    """Start toxiproxy without proxies; a Java process that starts meanwhile reads host names from its folder."""
    local = load_local()
    api, *ports = local._free_ports(1 + 2 * len(NODES))
    names = ("WORKERS", "BROKERS")
    by_name = {name: dict(zip(NODES, ports[index::2], strict=True)) for index, name in enumerate(names)}
    one = Network(f"127.0.0.1:{api}", by_name | {"CONTROLLER": {}})
    with (folder / "toxiproxy.txt").open("wb") as log:
        command = [tool("toxiproxy-server"), "-host", "127.0.0.1", "-port", str(api)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_S
        while not one.is_up():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        options = " ".join(filter(None, [os.environ.get("JDK_JAVA_OPTIONS"), "-Djdk.net.hosts.file=hosts"]))
        with patch.dict(os.environ, {"JDK_JAVA_OPTIONS": options}):
            yield one
    finally:
        process.kill()
        process.wait()


def rewire(one: Network, folders: Sequence[Path]) -> None:
    """Change the settings of brokers so that each reaches each other one through a proxy of this pair alone.

    A broker has one address for all others, a name, which each of them resolves by a file of its own.
    """
    for node, folder in zip(NODES, folders, strict=True):
        lines = (folder / "server.properties").read_text().splitlines()
        given = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
        one.ports["CONTROLLER"][node] = int(given["listeners"].rpartition(":")[2])
    for node, folder in zip(NODES, folders, strict=True):
        lines = (folder / "server.properties").read_text().splitlines()
        given = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
        clients, _, controller = given["listeners"].partition(",")
        workers, brokers = one.ports["WORKERS"][node], one.ports["BROKERS"][node]
        voters = ",".join(f"{other}@broker-{other}:{one.ports['CONTROLLER'][other]}" for other in NODES)
        own = f"WORKERS://127.0.0.1:{workers},BROKERS://127.0.0.1:{brokers}"
        advertised = f"WORKERS://{_ip(0, node)}:{workers},BROKERS://broker-{node}:{brokers}"
        with (folder / "server.properties").open("a") as file:
            file.write(
                f"listeners={clients},{own},{controller}\n"
                f"advertised.listeners={clients},{advertised}\n"
                "listener.security.protocol.map="
                + ",".join(f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "WORKERS", "BROKERS", "CONTROLLER"))
                + "\ninter.broker.listener.name=BROKERS\n"
                f"controller.quorum.voters={voters}\n"
            )
        known = {f"broker-{other}": "127.0.0.1" if other == node else _ip(node, other) for other in NODES}
        hosts = {"localhost": "127.0.0.1", **known}
        (folder / "hosts").write_text("".join(f"{ip} {name}\n" for name, ip in hosts.items()))
        one.connect("WORKERS", 0, node)
    for source in NODES:
        for node in set(NODES) - {source}:
            one.connect("BROKERS", source, node)
            one.connect("CONTROLLER", source, node)


CUT_S = 20.0
"""Length of a cut (s): longer than a session of the group and of a broker."""


@asynccontextmanager
async def cut(fault: str, folder: Path) -> AsyncIterator[tuple[Storm, Network]]:
    """Start a cluster whose workers and brokers reach brokers through proxies; the test itself does not."""
    with network(folder) as lines:

        def make(plain: Worker) -> Worker:
            return replace(plain, bootstrap=lines.workers_bootstrap)

        async with storm(fault, folder, change=partial(rewire, lines), make=make) as one:
            yield one, lines


async def published(one: Storm) -> int:
    """Return how many records are in the first partition of the output."""
    return sum(message.partition == 0 for message in await one.deployment.read(one.deployment.topics["output"]))


async def strike(lines: Network, pairs: list[tuple[int, int]]) -> None:
    """Cut the network between these pairs for a while."""
    lines.cut(*pairs)
    await asyncio.sleep(CUT_S)
    lines.mend(*pairs)


async def stall(one: Storm, lines: Network, nodes: Sequence[int]) -> None:
    """Cut the workers off these brokers, and see that nothing is published to the first partition after a while."""
    lines.cut(*((0, node) for node in nodes))
    await asyncio.sleep(CUT_S / 2)
    before = await published(one)
    await asyncio.sleep(CUT_S / 2)
    assert await published(one) == before, "the network was not cut: the test tests nothing"
    lines.mend(*((0, node) for node in nodes))


async def test_workers_reach_no_broker(tmp_path: Path) -> None:
    async with cut("cut-worker", tmp_path) as (one, lines):
        await one.under_load(partial(stall, one, lines, NODES))
        await one.settled("the workers waited, and continued")


async def test_workers_do_not_reach_one_broker(tmp_path: Path) -> None:
    async with cut("cut-one-broker", tmp_path) as (one, lines):
        await one.under_load(partial(stall, one, lines, [await one.leader("output")]))
        await one.settled("nothing was published to its partition meanwhile; the workers continued")


async def test_one_broker_does_not_reach_the_others(tmp_path: Path) -> None:
    async with cut("cut-brokers", tmp_path) as (one, lines):
        alone = await one.leader("output")
        others = set(NODES) - {alone}
        pairs = [pair for other in others for pair in ((alone, other), (other, alone))]
        await one.under_load(partial(strike, lines, pairs))
        await one.brokers.until_in_sync(*one.deployment.topics.values())
        assert await one.leader("output") != alone, "the network was not cut: the test tests nothing"
        await one.settled("another broker led the partition; the workers continued")
