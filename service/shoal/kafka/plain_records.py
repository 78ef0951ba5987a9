"""Makes aiokafka hand over messages as its parser returns them.

The client copies each parsed record into a frozen dataclass of eleven fields, which takes a tenth of a worker's
processor time. A parsed record has all that a task reads: offset, timestamp and its type, key, value and headers. This
depends on an internal of the client, `consumer.fetcher.PartitionRecords._consumer_record`. Only consumers with
`keep_parsed` as their value deserializer are affected; other consumers of the process are not.
"""

from __future__ import annotations

from typing import Any

from aiokafka.consumer import fetcher

__all__ = ["keep_parsed", "plain_record_options"]


def plain_record_options() -> dict[str, Any]:
    """Return the options of a consumer that hands over parsed records."""
    if fetcher.PartitionRecords is not _PlainRecords:
        fetcher.PartitionRecords = _PlainRecords
    return {"value_deserializer": keep_parsed}


def keep_parsed(value: bytes | None) -> bytes | None:
    """Return the value; a client without that internal calls it, and hands over its own records."""
    return value


class _PlainRecords(fetcher.PartitionRecords):  # type: ignore[misc] # the client has no types
    def _consumer_record(self, tp: Any, record: Any) -> Any:  # noqa: ANN401
        if self._value_deserializer is keep_parsed:
            return record
        return super()._consumer_record(tp, record)
