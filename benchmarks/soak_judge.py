"""What a soak released, counted from outside by a process for each processor."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from soak_partition import Job, PartitionFindings, judge_partition
from soak_records import is_malformed

__all__ = ["Findings", "judge", "summed"]

SAY_EVERY_S = 10.0


class Findings(NamedTuple):
    """Counts of records and clusters; `shoal verify` judged ``judged`` partitions and accepted ``verified`` of them."""

    records: int
    released: int
    suppressed: int
    quarantined: int
    twice: int
    lost: int
    clusters: int
    under_k: int
    judged: int
    verified: int

    @property
    def is_sound(self) -> bool:
        """Whether each record has one outcome and each cluster enough persons."""
        return self.twice == self.lost == self.under_k == 0 and self.clusters > 0


async def judge(jobs: Sequence[Job]) -> Findings:
    """Judge the partitions side by side, and say every ten seconds how far it is."""
    loop, began = asyncio.get_running_loop(), time.monotonic()
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        waiting = {loop.run_in_executor(pool, judge_partition, job) for job in jobs}
        done: set[asyncio.Future[PartitionFindings]] = set()
        while waiting:
            ended, waiting = await asyncio.wait(waiting, timeout=SAY_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
            done |= ended
            minutes = (time.monotonic() - began) / 60
            print(
                f"soak: {len(done)} of {len(jobs)} partitions are judged, {minutes:.1f} min",
                file=sys.stderr,
                flush=True,
            )
    return summed([one.result() for one in done])


def summed(parts: Sequence[PartitionFindings]) -> Findings:
    """Return the findings of all partitions together."""
    outcomes = np.zeros_like(parts[0].outcomes)
    for part in parts:
        outcomes += part.outcomes
    verdicts = [part.is_accepted for part in parts if part.is_accepted is not None]
    return Findings(
        records=len(outcomes),
        released=sum(part.released for part in parts),
        suppressed=sum(part.suppressed for part in parts),
        quarantined=_count_malformed(outcomes),
        twice=int((outcomes > 1).sum()),
        lost=int((outcomes == 0).sum()),
        clusters=sum(part.clusters for part in parts),
        under_k=sum(part.under_k for part in parts),
        judged=len(verdicts),
        verified=sum(verdicts),
    )


def _count_malformed(outcomes: NDArray[np.uint8]) -> int:
    return sum(1 for serial in np.flatnonzero(outcomes).tolist() if is_malformed(serial))
