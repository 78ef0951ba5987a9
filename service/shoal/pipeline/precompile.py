"""Compile what will be needed, before anybody waits for it."""

from __future__ import annotations

import numpy as np

from shoal.pipeline.stream import PartitionPipeline
from shoal.policy import Policy
from shoal.records import Block, JsonEncoder

__all__ = ["precompile"]


def precompile(policy: Policy) -> None:
    """Run a few made-up records through a flow that is thrown away.

    Kernels compile at their first use, for seconds on a machine that has not cached them yet. A worker that
    compiled after it had joined its group would miss heartbeats and lose its partitions.
    """
    count = 3 * policy.k
    encoder = JsonEncoder(policy)
    low = [0.0 if a.bounds is None else a.bounds[0] for a in policy.quasi_identifiers]
    block = Block(
        values=np.tile(np.array(low), (count, 1)),
        subjects=np.arange(count) // 2,
        passthrough=encoder.encode_passthrough([[None] * count for _ in policy.passthrough], count),
        index=np.arange(count),
        rejected=[],
        clipped=0,
    )
    flow = PartitionPipeline(policy, encoder)
    flow.push(block, np.column_stack([np.zeros(count, np.int64), np.arange(count)]))
    flow.flush()
