"""Punctuates the tasks of a loop concurrently. The loop reads on for the other tasks while one of them flushes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from shoal.kafka.client import task_exception
from shoal.kafka.partition_task import PartitionTask

__all__ = ["Punctuator"]

Punctuation = Callable[[], Coroutine[Any, Any, None]]


class Punctuator:
    """Runs the punctuations of tasks, at most one of each task at a time.

    A punctuation that flushes waits for two transactions, one after the other. If the loop waited for it, the records
    of all other partitions would wait too. Each task has its own producer and sends one transaction at a time, so that
    there are never more transactions than tasks.

    Notes
    -----
    Guarantee: the order of what one task does is not changed. A task holds its lock while it flushes.
    """

    def __init__(self) -> None:
        self._flushing: dict[PartitionTask, asyncio.Task[None]] = {}

    @property
    def flushing(self) -> Mapping[PartitionTask, asyncio.Task[None]]:
        """The tasks whose punctuation has not ended yet."""
        return self._flushing

    async def run(self, punctuations: Mapping[PartitionTask, Punctuation]) -> None:
        """Punctuate all tasks that do not flush; return when each of them has ended or waits for a transaction.

        Raises
        ------
        ShoalError
            A punctuation failed, of this run or an earlier one.
        """
        for task, punctuate in punctuations.items():
            if task not in self._flushing:
                self._flushing[task] = asyncio.create_task(punctuate())
        await asyncio.sleep(0)  # each new one runs until it has to wait
        self._remove_ended()

    async def finish(self) -> None:
        """Wait for all punctuations.

        Raises
        ------
        ShoalError
            A punctuation failed.
        """
        await asyncio.gather(*self._flushing.values())

    async def cancel(self) -> None:
        """Cancel the punctuations that have not ended."""
        for punctuation in self._flushing.values():
            punctuation.cancel()
        await asyncio.gather(*self._flushing.values(), return_exceptions=True)
        self._flushing.clear()

    def _remove_ended(self) -> None:
        ended = [task for task, punctuation in self._flushing.items() if punctuation.done()]
        errors = [task_exception(self._flushing.pop(task)) for task in ended]
        for error in errors:
            if error is not None:
                raise error
