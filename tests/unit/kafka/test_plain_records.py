"""What a consumer of Shoal hands over, and that other consumers of the process hand over what they did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.record import default_records, memory_records
from aiokafka.structs import ConsumerRecord
from shoal.kafka.aiokafka_compat import plain_record_options

pytestmark = pytest.mark.unit

READ_COMMITTED = 1


def handed_over(deserializer: Callable[[bytes | None], Any] | None) -> list[Any]:
    builder = default_records.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    builder.append(0, 1000, b"k", b"v", [("h", b"1")])
    builder.append(1, 1001, None, None, [])
    records = memory_records.MemoryRecords(bytes(builder.build()))
    tp = TopicPartition("t", 3)
    return list(fetcher.PartitionRecords(tp, records, [], 0, None, deserializer, True, READ_COMMITTED))


def test_a_consumer_of_shoal_hands_over_parsed_records_with_all_that_a_task_reads() -> None:
    found = handed_over(plain_record_options()["value_deserializer"])
    assert not any(isinstance(record, ConsumerRecord) for record in found)
    assert [(one.offset, one.timestamp, one.timestamp_type, one.key, one.value) for one in found] == [
        (0, 1000, 0, b"k", b"v"),
        (1, 1001, 0, None, None),
    ]
    assert [list(one.headers) for one in found] == [[("h", b"1")], []]


def test_other_consumers_hand_over_the_records_of_the_client() -> None:
    plain_record_options()
    for deserializer in (None, lambda value: value):
        found = handed_over(deserializer)
        assert all(type(record) is ConsumerRecord for record in found)
        assert [(one.topic, one.partition, one.offset, one.value) for one in found] == [
            ("t", 3, 0, b"v"),
            ("t", 3, 1, None),
        ]
