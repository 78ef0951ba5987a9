"""The network is cut between workers and brokers, and between brokers: no worker ends, no record twice or lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.cluster import NODES
from support.faulty_workers import Worker
from support.storms import Storm, storm
from support.toxiproxy import Network, network, rewire

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.deploy_tools,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("kernels"),
]

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
