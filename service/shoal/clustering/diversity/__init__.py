"""l-diversity, the largest share of one value, and t-closeness of clusters: definitions, and kernels that check them.

A value code is the number of a confidential value; only equality of codes counts. A bin is the index of a value in the
reference, the distribution that t-closeness compares a cluster with.

Every constraint of this module is closed under merging: if two clusters without common records satisfy it, their union
does. Counts of distinct values never fall, entropy and recursive diversity do not fall below the lower of the two, the
largest share and the distance do not rise above the larger of the two.
"""

from __future__ import annotations

from shoal.clustering.diversity.kernels import (
    ENTROPY_TOLERANCE,
    SHARE_TOLERANCE,
    T_TOLERANCE,
    distance_of,
    empty_diversity_scratch,
    excess_of,
    is_diverse,
)
from shoal.clustering.diversity.rule import (
    DISTINCT,
    ENTROPY,
    EQUAL,
    HIERARCHICAL,
    NO_DIVERSITY,
    NO_L,
    ORDERED,
    RECURSIVE,
    DiversityRule,
    LDiversity,
    ValueReference,
    build_diversity_rule,
)

__all__ = [
    "DISTINCT",
    "ENTROPY",
    "ENTROPY_TOLERANCE",
    "EQUAL",
    "HIERARCHICAL",
    "NO_DIVERSITY",
    "NO_L",
    "ORDERED",
    "RECURSIVE",
    "SHARE_TOLERANCE",
    "T_TOLERANCE",
    "DiversityRule",
    "LDiversity",
    "ValueReference",
    "build_diversity_rule",
    "distance_of",
    "empty_diversity_scratch",
    "excess_of",
    "is_diverse",
]
