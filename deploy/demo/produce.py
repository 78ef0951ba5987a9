"""Send the records of the demo to a topic at a steady rate, keyed by person; docker compose runs this."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path

from aiokafka import AIOKafkaProducer

__all__ = ["produce"]


async def produce(bootstrap: str, topic: str, lines: list[str], per_second: float) -> None:
    """Send every line once.

    Parameters
    ----------
    bootstrap
        Bootstrap server of the Kafka cluster.
    topic
        Name of the topic.
    lines
        Records as JSON; ``nr`` is the key, so all records of a person are in one partition.
    per_second
        Records per second.
    """
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        loop = asyncio.get_running_loop()
        start = loop.time()
        for index, line in enumerate(lines):
            await asyncio.sleep(start + index / per_second - loop.time())
            await producer.send(topic, line.encode(), key=str(json.loads(line)["nr"]).encode())


def main() -> None:
    """Read the command line and produce."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="records, one JSON object per line")
    parser.add_argument("--topic", default="wages")
    parser.add_argument("--per-second", type=float, default=50.0)
    arguments = parser.parse_args()
    lines = arguments.file.read_text(encoding="utf-8").splitlines()
    bootstrap = os.environ["SHOAL_KAFKA__BOOTSTRAP_SERVERS"]
    asyncio.run(produce(bootstrap, arguments.topic, lines, arguments.per_second))


if __name__ == "__main__":
    main()
