"""The start of a transactional producer, within a time limit: the client itself tries for ever, and logs nothing."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaProducer

from shoal.kafka.client import CLIENT_ERRORS, broker_error, transactional_id
from shoal.kafka.not_opened import NotYetError
from shoal.policy import KafkaSection

__all__ = ["NotStartedError", "start_in_time"]

START_S = 30.0
"""Time limit (s). The broker aborts the transaction of an earlier producer within it, unless that cannot be ended."""


class NotStartedError(NotYetError):
    """A producer could not start in time, although the broker may answer other requests.

    Attributes
    ----------
    waited_s : float
        How long it tried (s).
    """

    def __init__(self, message: str, waited_s: float) -> None:
        super().__init__(message)
        self.waited_s = waited_s


async def start_in_time(producer: AIOKafkaProducer, settings: KafkaSection, partition: int) -> None:
    """Start the producer of an input partition; the caller stops it, also after an error.

    Raises
    ------
    NotStartedError
        It has not started in 30 s.
    BrokerError
        The broker refused, or cannot be reached.
    """
    limit = asyncio.timeout(START_S)
    try:
        async with limit:
            await producer.start()
    except CLIENT_ERRORS as error:
        if not limit.expired():
            raise broker_error(error, settings, "WRITE") from None
        raise NotStartedError(
            f"{settings.input}-{partition}: transactional id {transactional_id(settings, partition)} could not begin "
            f"in {START_S:g} s: its coordinator does not answer, or an earlier transaction cannot be ended. Look "
            "whether all partitions of __transaction_state and of the output have leaders and enough replicas in sync",
            START_S,
        ) from None
