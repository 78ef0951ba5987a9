"""The method: which held records form a cluster, when, and what is published for them. No clock, no I/O."""

from shoal.engine.stream import Decisions, Partitioner, Released, StreamAggregator

__all__ = ["Decisions", "Partitioner", "Released", "StreamAggregator"]
