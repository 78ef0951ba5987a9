"""Microaggregation of a table: partition its records into clusters of at least k, and refine the partition.

The steps of `microaggregate`: an algorithm makes one or several partitions (one module per algorithm; `registry` lists
them, `auto` chooses among them); clusters that violate a constraint are merged (`constraints`); the partitions are
refined (`refinement`: `descent`, `annealing`, `exact`); sizes and constraints of the result are checked.
"""

from shoal.clustering.static.constraints import ClusterConstraints, records_above_share
from shoal.clustering.static.emd import ConfidentialAttribute, emd_of_clusters
from shoal.clustering.static.microaggregation import microaggregate, refined
from shoal.clustering.static.refinement import REFINEMENTS, BudgetUsed, RefinedPartition, default_budget
from shoal.clustering.static.registry import (
    ALGORITHMS,
    PARAMETER_RANGES,
    T_CLOSE_ALGORITHMS,
    Parameter,
    check_parameters,
    parameters_of,
)

__all__ = [
    "ALGORITHMS",
    "PARAMETER_RANGES",
    "REFINEMENTS",
    "T_CLOSE_ALGORITHMS",
    "BudgetUsed",
    "ClusterConstraints",
    "ConfidentialAttribute",
    "Parameter",
    "RefinedPartition",
    "check_parameters",
    "default_budget",
    "emd_of_clusters",
    "microaggregate",
    "parameters_of",
    "records_above_share",
    "refined",
]
