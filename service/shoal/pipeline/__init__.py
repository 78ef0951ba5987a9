"""One partition's way from bytes to bytes: decode, embed, engine, centroid, encode. No clock, no I/O."""

from shoal.pipeline.adaptive_state import AdaptiveState
from shoal.pipeline.precompile import precompile
from shoal.pipeline.release import ReleaseStrategy, release_strategy
from shoal.pipeline.reorder_buffer import ClusterRestorer, PendingRow
from shoal.pipeline.stats import RunSummary
from shoal.pipeline.stream import BLOCK_RECORDS, BlockDecisions, DecidedCluster, PartitionPipeline
from shoal.pipeline.table import TablePipeline, TableRelease
from shoal.pipeline.table_partition import AlgorithmSpec

__all__ = [
    "BLOCK_RECORDS",
    "AdaptiveState",
    "AlgorithmSpec",
    "BlockDecisions",
    "ClusterRestorer",
    "DecidedCluster",
    "PartitionPipeline",
    "PendingRow",
    "ReleaseStrategy",
    "RunSummary",
    "TablePipeline",
    "TableRelease",
    "precompile",
    "release_strategy",
]
