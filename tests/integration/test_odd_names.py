"""Headers whose names are not UTF-8: Kafka takes them, and they must not hold up the partition."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.consumer import fetcher
from aiokafka.producer import message_accumulator, producer
from aiokafka.record import default_records
from running import EARLIEST, Stage

pytestmark = pytest.mark.integration


class Odd(str):
    """A name that a client without manners would send."""

    __slots__ = ()

    def encode(self, *_: str) -> bytes:
        return b"\xff\xfe"


@pytest.fixture
def strictness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the client back as it was: leniency is the process's."""
    monkeypatch.setattr(fetcher, "MemoryRecords", fetcher.MemoryRecords)
    # The compiled builder insists on proper names.
    builder = default_records._DefaultRecordBatchBuilderPy
    for module in (message_accumulator, producer):
        monkeypatch.setattr(module, "DefaultRecordBatchBuilder", builder)


@pytest.mark.usefixtures("strictness")
@pytest.mark.parametrize("compression", [None, "gzip"])
async def test_a_name_that_is_not_utf8_holds_nothing_up(
    bootstrap: str, tmp_path: Path, compression: str | None
) -> None:
    stage = await Stage.create(bootstrap, tmp_path)
    client = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=50, compression_type=compression)
    await client.start()
    try:
        sent = [
            await client.send(
                stage.topics["input"], stage.record(), headers=[(Odd("x") if number == 17 else "x", b"1")], partition=0
            )
            for number in range(40)
        ]
        for future in sent:
            await future
    finally:
        await client.stop()
    async with stage.run(EARLIEST) as run:
        await run.until_read(40)
        await run.until(lambda: run.total("shoal_records_total", outcome="released") > 0)
        assert run.total("shoal_records_total", outcome="quarantined") == 0
    assert fetcher.MemoryRecords.__module__ == "shoal.kafka.leniency"
