"""Headers whose names are not UTF-8: Kafka accepts them, and they must not stop the partition."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.consumer import fetcher
from aiokafka.producer import message_accumulator, producer
from aiokafka.record import default_records, memory_records
from support.running import EARLIEST, Stage


class Odd(str):
    """A name that a client without manners would send."""

    __slots__ = ()

    def encode(self, *_: str) -> bytes:
        return b"\xff\xfe"


@pytest.fixture
def strictness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with the unchanged client, and restore it: the change applies to the whole process."""
    monkeypatch.setattr(fetcher, "MemoryRecords", memory_records.MemoryRecords)
    # The compiled builder insists on proper names.
    builder = default_records._DefaultRecordBatchBuilderPy
    for module in (message_accumulator, producer):
        monkeypatch.setattr(module, "DefaultRecordBatchBuilder", builder)


async def put_odd(bootstrap: str, topic: str, values: list[bytes], compression: str | None = None) -> None:
    """Send records, one of them with such a name."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=50, compression_type=compression) as client:
        sent = [
            await client.send(topic, value, headers=[(Odd("x") if number == 17 else "x", b"1")], partition=0)
            for number, value in enumerate(values)
        ]
        for future in sent:
            await future


@pytest.mark.usefixtures("strictness")
@pytest.mark.parametrize("compression", [None, "gzip"])
async def test_a_header_name_that_is_not_utf8_does_not_stop_a_worker(stage: Stage, compression: str | None) -> None:
    await put_odd(stage.bootstrap, stage.topics["input"], [stage.record() for _ in range(40)], compression)
    async with stage.run(EARLIEST) as run:
        await run.until_read(40)
        await run.until(lambda: run.total("shoal_records_total", outcome="released") > 0)
        assert run.total("shoal_records_total", outcome="quarantined") == 0
    assert fetcher.MemoryRecords.__module__ == "shoal.kafka.aiokafka_compat"
