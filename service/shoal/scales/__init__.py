"""Scales: values of records to coordinates and codes, members of a cluster to published values, and what that loses.

A new scale is one module with a subclass of `AttributeScale`, and its import here.
"""

from shoal.scales.embedding import Embedding, Scaling
from shoal.scales.nominal import CategoryIndex, NominalScale
from shoal.scales.numeric import NumericScale, PublicationGrid, exact_means
from shoal.scales.ordinal import OrdinalScale
from shoal.scales.scale import SCALES, remedies, scale_of
from shoal.scales.time import TimeScale

__all__ = [
    "SCALES",
    "CategoryIndex",
    "Embedding",
    "NominalScale",
    "NumericScale",
    "OrdinalScale",
    "PublicationGrid",
    "Scaling",
    "TimeScale",
    "exact_means",
    "remedies",
    "scale_of",
]
