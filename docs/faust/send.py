"""Create the topic of the example and send visits of invented patients: ``python docs/faust/send.py 2000``."""

import asyncio
import json
import os
import sys

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

BROKER = os.environ.get("VISITS_BROKER", "kafka://localhost:9092").removeprefix("kafka://")
DIAGNOSES = "asthma", "flu", "fracture"
TOPIC = os.environ.get("VISITS_TOPIC", "visits")


async def send(count: int) -> None:
    """Send ``count`` visits to two partitions."""
    admin = AIOKafkaAdminClient(bootstrap_servers=BROKER)
    await admin.start()
    if TOPIC not in await admin.list_topics():
        await admin.create_topics([NewTopic(TOPIC, num_partitions=2, replication_factor=1)])
    await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=BROKER, linger_ms=5) as producer:
        for number in range(count):
            visit = {"patient": f"p{number % 700}", "age": number * 31 % 111, "diagnosis": DIAGNOSES[number % 7 % 3]}
            await producer.send(TOPIC, json.dumps(visit).encode(), partition=number % 2)


if __name__ == "__main__":
    asyncio.run(send(int(sys.argv[1])))
