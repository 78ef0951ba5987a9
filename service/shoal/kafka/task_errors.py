"""What the tasks of a session ended with, in words of ours: a client's error may quote anything."""

from __future__ import annotations

import asyncio

from shoal.errors import BrokerUnavailableError, GuaranteeError, ShoalError
from shoal.kafka.aiokafka_compat import tolerate_invalid_header_names
from shoal.kafka.client import CLIENT_ERRORS, broker_error
from shoal.observability import raise_location

__all__ = ["task_exception", "to_shoal_error"]


def task_exception(task: asyncio.Task[None]) -> BaseException | None:
    """Error that a task ended with; none if it did its work or was told to stop.

    A task that is cancelled though nobody asked for it has failed: the client lets its own cancellations out where
    a connection breaks at the wrong moment, and a worker that took them for the end of its work would leave with 0.
    """
    if task.cancelled():
        return None if task.cancelling() else asyncio.CancelledError()
    return task.exception()


def to_shoal_error(error: BaseException) -> ShoalError:
    """Error of ours for whatever ended a task: its name and place, never its text."""
    if isinstance(error, ShoalError):
        return error
    if isinstance(error, (*CLIENT_ERRORS, asyncio.CancelledError)):
        return broker_error(error)
    if isinstance(error, UnicodeDecodeError) and tolerate_invalid_header_names():
        return BrokerUnavailableError("the name of a header is not UTF-8: reading once more without minding")
    return GuaranteeError(f"unexpected {raise_location(error)}: nothing more is sent")
