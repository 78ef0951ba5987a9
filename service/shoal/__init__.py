"""Shoal: streams and tables of personal records made k-anonymous while they move."""

from shoal.audit import verify
from shoal.clustering.static import microaggregate
from shoal.clustering.stream import StreamAggregator
from shoal.policy import Policy

__all__ = ["Policy", "StreamAggregator", "microaggregate", "verify"]
