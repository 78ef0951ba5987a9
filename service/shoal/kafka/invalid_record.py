"""The error of a broker that refuses a message itself, as a compacted topic refuses one without a key.

aiokafka does not know the code of this error (INVALID_RECORD, 87) and reports an unknown error, which looks as if it
could pass.
"""

from __future__ import annotations

from aiokafka import errors as kafka_errors

__all__ = ["InvalidRecordError"]

_CODE = 87


class _Error(kafka_errors.BrokerResponseError):  # type: ignore[misc] # the client has no types
    errno = _CODE
    message = "INVALID_RECORD"


kafka_errors.kafka_errors.setdefault(_CODE, _Error)
InvalidRecordError = kafka_errors.for_code(_CODE)
"""Raised by a producer once this module is imported; the class of the client, if it has one."""
