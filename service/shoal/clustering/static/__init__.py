"""Finished tables: every partitioner of the literature behind one door, and what can be made of its result."""

from shoal.clustering.static.confidential import Confidential, distances_of
from shoal.clustering.static.constraints import ClusterConstraints, surplus
from shoal.clustering.static.microaggregation import microaggregate, refined
from shoal.clustering.static.refinement import REFINEMENTS, Pace, Refined, steady_pace
from shoal.clustering.static.registry import (
    ALGORITHMS,
    RANGES,
    T_CLOSE_ALGORITHMS,
    Parameter,
    check_parameters,
    parameters_of,
)

__all__ = [
    "ALGORITHMS",
    "RANGES",
    "REFINEMENTS",
    "T_CLOSE_ALGORITHMS",
    "ClusterConstraints",
    "Confidential",
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
