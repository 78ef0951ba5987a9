"""Finished tables: every partitioner of the literature behind one door, and what can be made of its result."""

from shoal.engine.static.refinement import REFINEMENTS, Pace, Refined
from shoal.engine.static.registry import ALGORITHMS, parameters_of
from shoal.engine.static.table import microaggregate, refined

__all__ = ["ALGORITHMS", "REFINEMENTS", "Pace", "Refined", "microaggregate", "parameters_of", "refined"]
