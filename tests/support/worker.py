"""A worker that can kill itself inside a transaction: `python worker.py run POLICY ...` as `shoal run POLICY ...`,
with every logger at its loudest.

DIE_AT=STEP:N kills the process with SIGKILL at the N-th transaction that carries records (or, for ``start``, at
the one that commits the starting point): before the offsets are added, after that, or after the commit.
Everything is on the broker by then: `publish` waits for its messages before it adds the offsets.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support.canaries import main_loudly as main


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(step: str, at: int) -> None:
    """Wrap the steps of the client. Producers of several partitions work concurrently; each is observed alone."""
    count = 0
    carrying: set[int] = set()
    send_batch = AIOKafkaProducer.send_batch
    add_offsets = AIOKafkaProducer.send_offsets_to_transaction
    commit = AIOKafkaProducer.commit_transaction

    async def sending(self: Any, batch: Any, topic: str, **options: Any) -> Any:
        if not topic.startswith("copy-"):
            carrying.add(id(self))
        return await send_batch(self, batch, topic, **options)

    async def adding(self: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal count
        counts = id(self) in carrying or step == "start"
        count += counts
        if counts and count >= at and step in {"sent", "start"}:
            die()
        done = await add_offsets(self, *arguments, **options)
        if counts and count >= at and step == "offsets":
            die()
        return done

    async def committing(self: Any) -> Any:
        done = await commit(self)
        if id(self) in carrying and count >= at and step == "committed":
            die()
        carrying.discard(id(self))
        return done

    AIOKafkaProducer.send_batch = sending
    AIOKafkaProducer.send_offsets_to_transaction = adding
    AIOKafkaProducer.commit_transaction = committing


if __name__ == "__main__":
    plan = os.environ.pop("DIE_AT", "")
    if plan:
        step, _, at = plan.partition(":")
        arm(step, int(at))
    sys.exit(main())
