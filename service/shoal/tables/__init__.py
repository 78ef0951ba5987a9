"""Microaggregation of finished tables: partition the records into clusters of at least k, and refine the partition."""

from shoal.tables.constraints import ClusterConstraints, ConfidentialAttribute, emd_of_clusters, records_above_share
from shoal.tables.measures import linkage_share
from shoal.tables.microaggregation import (
    ALGORITHMS,
    PARAMETER_RANGES,
    T_CLOSE_ALGORITHMS,
    Parameter,
    check_parameters,
    default_refinement,
    microaggregate,
    parameters_of,
    refined,
)
from shoal.tables.reference_sample import UNITS, ReferenceSample, SmoothedReference
from shoal.tables.refinement import REFINEMENTS, BudgetUsed, RefinedPartition, default_budget
from shoal.tables.table import AlgorithmSpec, TablePipeline, TableRelease, check_algorithm

__all__ = [
    "ALGORITHMS",
    "PARAMETER_RANGES",
    "REFINEMENTS",
    "T_CLOSE_ALGORITHMS",
    "UNITS",
    "AlgorithmSpec",
    "BudgetUsed",
    "ClusterConstraints",
    "ConfidentialAttribute",
    "Parameter",
    "ReferenceSample",
    "RefinedPartition",
    "SmoothedReference",
    "TablePipeline",
    "TableRelease",
    "check_algorithm",
    "check_parameters",
    "default_budget",
    "default_refinement",
    "emd_of_clusters",
    "linkage_share",
    "microaggregate",
    "parameters_of",
    "records_above_share",
    "refined",
]
