"""What the stage reads from Faust, and what it does with the app's consumer."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import faust
import pytest
from faust.types import TP
from shoal.errors import ConfigError
from shoal.stage.faust_adapter import FaustAdapter
from support.faust_apps import FakeConsumer, adapter_of, app_in

READ_COMMITTED = 1


class Visit(faust.Record, serializer="json"):
    who: str
    age: int


class Stay(faust.Record):
    visit: Visit


@pytest.mark.parametrize(
    ("serializer", "value", "raw", "read"),
    [
        ("json", Visit(who="a", age=1), b'{"who":"a",  "age":1}', b'{"who":"a",  "age":1}'),
        ("raw", b'{"who": 1}', b'{"who": 1}', b'{"who": 1}'),
        ("json", None, None, None),
        ("json", None, b"no json", b"no json"),
        ("json", {}, b'{"who":"a","__faust":{"ns":"x.Visit"}}', b'{"who":"a","__faust":{"ns":"x.Visit"}}'),
        ("yaml", Visit(who="a", age=1), b"\x80", b'{"who":"a","age":1}'),
        ("yaml", Stay(visit=Visit(who="a", age=1)), b"\x80", b'{"visit":{"who":"a","age":1}}'),
        ("yaml", {"who": "a"}, b"\x80", b'{"who":"a"}'),
        ("yaml", object(), b"\x80", b"\x80"),
        ("yaml", None, b"\x80", b"\x80"),
    ],
)
async def test_a_record_is_the_bytes_of_the_topic_unless_its_codec_is_not_json(
    tmp_path: Path, serializer: str, value: Any, raw: bytes | None, read: bytes | None
) -> None:
    topic = app_in(tmp_path).topic("visits", acks=False, value_serializer=serializer)
    assert FaustAdapter(topic.stream())._record_bytes(value, raw) == read


@pytest.mark.parametrize("level", [None, "read_committed", 7])
async def test_a_client_without_a_known_isolation_level_is_refused(tmp_path: Path, level: object) -> None:
    consumer = FakeConsumer(level)
    with pytest.raises(ConfigError, match="cannot be set"):
        await adapter_of(tmp_path, consumer).set_read_committed()
    consumer = FakeConsumer()
    del consumer._thread._consumer._fetcher._pending_tasks
    with pytest.raises(ConfigError, match="cannot be set"):
        await adapter_of(tmp_path, consumer).set_read_committed()
    del consumer._thread._consumer._fetcher._isolation_level
    with pytest.raises(ConfigError, match="cannot be set"):
        await adapter_of(tmp_path, consumer).set_read_committed()


async def test_records_that_were_fetched_before_the_stage_started_may_be_uncommitted(tmp_path: Path) -> None:
    consumer = FakeConsumer()
    adapter = adapter_of(tmp_path, consumer)
    assert await adapter.set_read_committed()
    assert consumer._thread._consumer._fetcher._isolation_level == READ_COMMITTED
    assert await adapter.set_read_committed(), "an agent that failed and was restarted would not know"
    other_app = adapter_of(tmp_path, consumer)
    assert not await other_app.set_read_committed(), "the level was set before this app fetched anything"


async def test_a_stage_that_sets_the_level_marks_the_topics_of_all_stages(tmp_path: Path) -> None:
    consumer = FakeConsumer(topics=("visits", "births"))
    first, late = adapter_of(tmp_path, consumer), adapter_of(tmp_path, consumer)
    other, late.topic = adapter_of(tmp_path, consumer), "births"
    late.app = other.app = first.app
    other.topic = "assigned later"
    assert await first.set_read_committed()
    assert await late.set_read_committed()
    assert not await other.set_read_committed()


async def test_a_rewind_does_nothing_while_the_app_pauses_the_partition_or_rebalances(tmp_path: Path) -> None:
    consumer, tp = FakeConsumer(), TP("visits", 0)
    adapter = adapter_of(tmp_path, consumer)
    await adapter.rewind(0, 7)
    assert consumer.calls == [("pause", {tp}), ("seek", {tp: 7}), ("resume", {tp})]
    consumer.calls.clear()
    # While Faust recovers its tables it keeps all partitions paused. To resume one would deliver records too early.
    consumer._paused_partitions.add(tp)
    await adapter.rewind(0, 7)
    consumer._paused_partitions.clear()
    adapter.app.rebalancing = True
    await adapter.rewind(0, 7)
    await adapter.rewind(1, 7)
    assert consumer.calls == []


async def test_each_rewind_to_the_same_offset_waits_longer_for_records_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, sleep = adapter_of(tmp_path, FakeConsumer()), AsyncMock()
    monkeypatch.setattr("asyncio.sleep", sleep)
    for offset in [7] * 9 + [8]:
        await adapter.rewind(0, offset)
    assert [call.args[0] for call in sleep.await_args_list] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 0.05]
