"""Finished tables: every partitioner of the literature behind one door, and what can be made of its result."""

from shoal.engine.static.registry import ALGORITHMS, parameters_of, partition
from shoal.engine.static.table import microaggregate

__all__ = ["ALGORITHMS", "microaggregate", "parameters_of", "partition"]
