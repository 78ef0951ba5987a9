"""Stream microaggregation with bounded delay: blocks of records in, clusters of published rows out."""

from shoal.streams.aggregator import Released, StreamAggregator
from shoal.streams.clusterer import StreamClusterer
from shoal.streams.held_records import Decisions
from shoal.streams.pipeline import (
    BLOCK_RECORDS,
    LARGE_BLOCK_RECORDS,
    PartitionPipeline,
    precompile,
)
from shoal.streams.release import (
    BlockDecisions,
    ClusterRestorer,
    DecidedCluster,
    PendingRow,
    ReleaseStrategy,
    release_strategy,
)
from shoal.streams.spreads import AdaptiveState
from shoal.streams.stats import RunSummary

__all__ = [
    "BLOCK_RECORDS",
    "LARGE_BLOCK_RECORDS",
    "AdaptiveState",
    "BlockDecisions",
    "ClusterRestorer",
    "DecidedCluster",
    "Decisions",
    "PartitionPipeline",
    "PendingRow",
    "ReleaseStrategy",
    "Released",
    "RunSummary",
    "StreamAggregator",
    "StreamClusterer",
    "precompile",
    "release_strategy",
]
