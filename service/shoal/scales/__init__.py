"""Scales: values of records to coordinates and codes, members of a cluster to published values, and what that loses.

The module of a scale has its name in the policy, and a subclass of `AttributeScale`, which registers itself.
"""

from importlib import import_module

from shoal.policy import Scale
from shoal.scales.embedding import Embedding, Scaling
from shoal.scales.nominal import CategoryIndex
from shoal.scales.numeric import PublicationGrid, exact_means
from shoal.scales.scale import SCALES, remedies, scale_of

__all__ = ["SCALES", "CategoryIndex", "Embedding", "PublicationGrid", "Scaling", "exact_means", "remedies", "scale_of"]

for _scale in Scale:
    import_module(f"shoal.scales.{_scale}")
