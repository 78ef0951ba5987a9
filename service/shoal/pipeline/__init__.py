"""Turn the decoded records of one partition or table into published bytes.

A stream (`PartitionPipeline`) takes each block of records through these steps: quota, embed, cluster, check, centroid,
encode, release. A finished table (`TablePipeline`) takes all records through the same steps at once and measures the
result. The caller decodes records and writes rows. The package reads no clock and does no I/O.
"""

from shoal.pipeline.adaptive_state import AdaptiveState
from shoal.pipeline.precompilation import precompile, precompile_table
from shoal.pipeline.reference_sample import UNITS, ReferenceSample, SmoothedReference
from shoal.pipeline.release import ReleaseStrategy, release_strategy
from shoal.pipeline.reorder_buffer import ClusterRestorer, PendingRow
from shoal.pipeline.stats import RunSummary
from shoal.pipeline.stream import (
    BLOCK_RECORDS,
    LARGE_BLOCK_RECORDS,
    BlockDecisions,
    DecidedCluster,
    PartitionPipeline,
)
from shoal.pipeline.table import TablePipeline, TableRelease
from shoal.pipeline.table_partition import AlgorithmSpec

__all__ = [
    "BLOCK_RECORDS",
    "LARGE_BLOCK_RECORDS",
    "UNITS",
    "AdaptiveState",
    "AlgorithmSpec",
    "BlockDecisions",
    "ClusterRestorer",
    "DecidedCluster",
    "PartitionPipeline",
    "PendingRow",
    "ReferenceSample",
    "ReleaseStrategy",
    "RunSummary",
    "SmoothedReference",
    "TablePipeline",
    "TableRelease",
    "precompile",
    "precompile_table",
    "release_strategy",
]
