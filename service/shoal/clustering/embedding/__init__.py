"""Values of records to coordinates and codes, and members of a cluster to published values.

`Embedding` gives coordinates, on which distances are computed. Published values are computed from the members' values
in their own units, never from coordinates.
"""

from shoal.clustering.embedding.category_tree import CategoryTree
from shoal.clustering.embedding.coordinates import Embedding, Scaling, category_trees
from shoal.clustering.embedding.exact_means import exact_means
from shoal.clustering.embedding.publication_grid import PublicationGrid, Published
from shoal.clustering.embedding.published_values import CategoryTexts

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
