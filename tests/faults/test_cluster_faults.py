"""Faults of a cluster of three brokers under load: no worker ends, no record twice or lost."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest
from support.cluster import NODES
from support.storms import PATIENCE_S, Storm, storm

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900), pytest.mark.usefixtures("kernels")]

AWAY_S = 20.0
"""Time for which brokers are away (s): longer than a session of the group."""


@pytest.mark.parametrize(
    ("fault", "of"),
    [
        ("output-leader", "output"),
        ("group-coordinator", "offsets"),
        ("transaction-coordinator", "transactions"),
    ],
)
async def test_a_leader_is_killed_three_times(fault: str, of: str, tmp_path: Path) -> None:
    async with storm(fault, tmp_path) as one:
        gaps_s = []
        for _ in range(3):
            leader = await one.leader(of)

            async def strike(leader: int = leader) -> None:
                await one.brokers.end(leader)
                gaps_s.append(await progress_s(one))
                assert await one.leader(of) != leader

            await one.under_load(strike)
            await one.brokers.start(leader)
            await one.brokers.until_in_sync(*one.deployment.topics.values(), "__consumer_offsets")
        await one.settled(f"records were published again {min(gaps_s):.1f} to {max(gaps_s):.1f} s after the kill")


async def progress_s(one: Storm) -> float:
    """Return how long it takes until the next records are resolved (s)."""
    began_s, before = time.monotonic(), await one.deployment.resolved()
    await one.deployment.wait_for(before + 1, PATIENCE_S)
    return time.monotonic() - began_s


async def test_two_of_three_brokers_are_away(tmp_path: Path) -> None:
    async with storm("two-of-three", tmp_path) as one:

        async def strike() -> None:
            for node in NODES[1:]:
                await one.brokers.end(node)
            await asyncio.sleep(AWAY_S)
            for node in NODES[1:]:
                await one.brokers.start(node)

        await one.under_load(strike)
        await one.settled("the workers waited, and continued")


async def test_brokers_are_restarted_one_after_the_other(tmp_path: Path) -> None:
    async with storm("rolling-brokers", tmp_path) as one:
        for node in NODES:

            async def strike(node: int = node) -> None:
                await one.brokers.end(node, signal.SIGTERM)
                await one.brokers.start(node)

            await one.under_load(strike)
            await one.brokers.until_in_sync(*one.deployment.topics.values(), "__consumer_offsets")
        await one.settled("three brokers were restarted; the workers continued")


async def test_a_paused_leader_does_not_return_as_one(tmp_path: Path) -> None:
    async with storm("paused-broker", tmp_path) as one:
        leader = await one.leader("output")

        async def strike() -> None:
            one.brokers.send(leader, signal.SIGSTOP)
            try:
                await asyncio.sleep(AWAY_S)
            finally:
                one.brokers.send(leader, signal.SIGCONT)

        await one.under_load(strike)
        assert await one.leader("output") != leader, "the broker still leads: the test tests nothing"
        await one.settled("another broker led meanwhile; the workers continued")
