"""Values of records to coordinates and codes, members of a cluster to published values, and what that loses."""

from shoal.scales.categories import CategoryTree
from shoal.scales.coordinates import Embedding, Scaling, category_trees
from shoal.scales.publication import CategoryTexts, PublicationGrid, Published, exact_means

__all__ = [
    "CategoryTexts",
    "CategoryTree",
    "Embedding",
    "PublicationGrid",
    "Published",
    "Scaling",
    "category_trees",
    "exact_means",
]
