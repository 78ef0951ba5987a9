"""Finished tables: every partitioner of the literature behind one door, and what can be made of its result."""

from shoal.engine.static.closeness import Confidential, distances_of
from shoal.engine.static.demands import Demands, surplus
from shoal.engine.static.refinement import REFINEMENTS, Pace, Refined, steady_pace
from shoal.engine.static.registry import ALGORITHMS, CLOSE, RANGES, Parameter, check_parameters, parameters_of
from shoal.engine.static.table import microaggregate, refined

__all__ = [
    "ALGORITHMS",
    "CLOSE",
    "RANGES",
    "REFINEMENTS",
    "Confidential",
    "Demands",
    "Pace",
    "Parameter",
    "Refined",
    "check_parameters",
    "distances_of",
    "microaggregate",
    "parameters_of",
    "refined",
    "steady_pace",
    "surplus",
]
