"""The method: which held records form a cluster, when, and what is published for them. No clock, no I/O."""

from shoal.clustering.stream.clusterer import Decisions, Released, StreamAggregator, StreamClusterer

__all__ = ["Decisions", "Released", "StreamAggregator", "StreamClusterer"]
