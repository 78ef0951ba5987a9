"""The parts of Faust and its client that the stage uses are unchanged; a new version of them fails here first."""

from __future__ import annotations

import ast
import asyncio
import re
import uuid
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiokafka
import faust
import pytest
from faust.types import TP
from shoal.kafka import broker_cluster_id
from shoal.policy import KafkaSection
from shoal.stage.faust_adapter import USED_FAUST_API, FaustAdapter
from support.kafka_broker import admin, create_topic, produce, wait_until

READ_COMMITTED = 1

ROOT = Path(__file__).resolve().parents[2]
SENT = [b'{"n": 1}', b"no json", b'{"n": 3}']


@pytest.fixture
async def app(bootstrap: str, tmp_path: Path) -> AsyncIterator[faust.App]:
    """Yield an app of this event loop; it is stopped afterwards."""
    made = faust.App(
        f"pin-{uuid.uuid4().hex[:8]}", broker=f"kafka://{bootstrap}", web_enabled=False, datadir=str(tmp_path / "data")
    )
    yield made
    if made.started:
        await made.stop()


async def test_signals_records_and_rewinds_of_faust_are_as_the_stage_expects(app: faust.App, bootstrap: str) -> None:
    name = await create_topic(bootstrap)
    await produce(bootstrap, name, [b'{"n": 0}'], transactional_id=f"upstream-{name}", abort=True)
    await produce(bootstrap, name, SENT)
    order: list[str] = []
    delivered: list[Any] = []
    adapters: list[FaustAdapter] = []
    assigned: list[set[int]] = []

    async def take(partitions: set[int]) -> None:
        order.append("assigned")
        assigned.append(partitions)
        await adapters[0].set_read_committed()

    async def settle(_: set[int]) -> None:
        # Faust resumes the flow after this: no record may be delivered before.
        await asyncio.sleep(0.5)
        order.append("settled" if not delivered else "too late")

    async def note(kind: str) -> None:
        order.append(kind)

    @app.agent(app.topic(name, acks=False))
    async def agent(stream: Any) -> None:
        adapter = FaustAdapter(stream)
        adapters.append(adapter)
        adapter.connect_signals(take, lambda _: note("revoked"), settle, lambda _: note("ending"))
        # As a stage does, before partitions are assigned; otherwise records that are already fetched may be delivered.
        assert not await adapter.set_read_committed()
        async for partition, message in adapter.messages():
            delivered.append((partition, message))

    await app.start()
    await wait_until(lambda: len(delivered) >= len(SENT), 30, "all messages")
    (adapter,) = adapters
    assert order[-2:] == ["assigned", "settled"]
    assert assigned[-1] == adapter.assignment() == {0}
    # Records that Faust cannot decode are delivered in order too, all with the bytes and timestamps of the topic. The
    # aborted record is not delivered; it and its control record take two offsets.
    assert [(partition, message.offset, message.value) for partition, message in delivered] == [
        (0, offset, value) for offset, value in enumerate(SENT, 2)
    ]
    assert all(message.timestamp > 1_600_000_000_000 for _, message in delivered)
    # Nothing was acknowledged or committed.
    assert not app.topics.acks_enabled_for(name)
    tp = aiokafka.TopicPartition(name, 0)
    async with admin(bootstrap) as client:
        committed = await client.list_consumer_group_offsets(app.conf.id, partitions=[tp])
        cluster = (await client.describe_cluster())["cluster_id"]
    assert committed[tp].offset == -1
    assert cluster
    assert await adapter.cluster_id() == await broker_cluster_id(KafkaSection(bootstrap_servers=bootstrap)) == cluster
    consumer: Any = app.consumer
    assert consumer._thread._consumer._fetcher._isolation_level == READ_COMMITTED
    # After a rewind the same records are delivered again.
    await adapter.rewind(0, 3)
    await wait_until(lambda: len(delivered) >= len(SENT) + 2, 30, "the records after the rewind")
    assert [message.offset for _, message in delivered[len(SENT) :]] == [3, 4]
    await app.stop()
    assert "ending" in order
    adapter.disconnect_signals()


def test_the_stage_uses_no_private_name_outside_the_list() -> None:
    listed = set(re.findall(r"\w+", " ".join(USED_FAUST_API)))
    used = {
        node.attr
        for path in (ROOT / "service" / "shoal" / "stage").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and ast.unparse(node.value) != "self"
    }
    assert used
    assert used <= listed


def test_the_versions_of_faust_and_its_client_are_pinned() -> None:
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"
    )
    for name in ("faust-streaming", "aiokafka", "mode-streaming"):
        assert version(name) == pinned[name], f"{name}: run the tests of this file before you pin another version"


def test_partitions_of_faust_and_of_the_client_are_equal() -> None:
    assert TP("topic", 3) == aiokafka.TopicPartition("topic", 3)
    assert hash(TP("topic", 3)) == hash(aiokafka.TopicPartition("topic", 3))
