"""P."""

from shoal.clustering.stream.aggregator import Released, StreamAggregator
from shoal.clustering.stream.clusterer import Decisions, StreamClusterer

__all__ = ["Decisions", "Released", "StreamAggregator", "StreamClusterer"]
