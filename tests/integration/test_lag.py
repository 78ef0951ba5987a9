"""The lag of a worker: records that it cannot read count, too."""

from __future__ import annotations

from support.kafka_broker import open_transaction
from support.running import Stage

LAG = "shoal_consumer_lag_records"


async def test_records_behind_an_open_transaction_of_a_producer_are_lag(stage: Stage) -> None:
    read = await stage.put(30)
    async with stage.run() as run:
        await run.until(lambda: run.total("shoal_records_total", outcome="in") == 30 and run.total(LAG) == 0)
        async with open_transaction(stage.bootstrap, stage.topics["input"], stage.record()):
            hidden = await stage.put(7)
            await run.until(lambda: run.total(LAG) == 8, "the lag of the open record and seven behind it")
            await run.until_ready()
        await run.until(lambda: run.total(LAG) == 0, "the end of the log")
    await stage.drained([*read, *hidden])
