"""`Microaggregator`: microaggregation as a transformer of scikit-learn. Needs the extra ``sklearn``."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from shoal.arrays import Float64Matrix, Int32Vector
from shoal.tables import microaggregate
from shoal.tables.arguments import is_integer

try:
    from scipy.sparse import issparse
    from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError:
    raise ImportError("shoal.sklearn needs scikit-learn: install shoal[sklearn]") from None


class Microaggregator(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # it has no types
    """Replaces each row by the mean of a cluster of at least k rows that lie close together.

    Parameters
    ----------
    k : int
        Smallest cluster.
    algorithm, refine, seed
        Of `shoal.microaggregate`.

    Attributes
    ----------
    labels_ : ndarray of int32, shape (n,)
        Cluster of each row of the table of `fit`, from 0.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of str
        Names of the columns, if they are texts.

    Notes
    -----
    Guarantee: each row that a call returns occurs at least k times in what this call returns. So a call takes a whole
    table of at least k rows, and `transform` partitions the table that it is given: a row of a small part, or the
    nearest mean of another table, would not be shared by k rows.

    Rows are counted, not people. Columns are not rescaled: distances are Euclidean. Scale before, and use
    ``inverse_transform`` of the scaler after. `shoal.anonymize_table` does both by a policy, for categories and dates
    as well.
    """

    def __init__(self, k: int = 10, *, algorithm: str = "auto", refine: str | None = None, seed: int = 0) -> None:
        self.k = k
        self.algorithm = algorithm
        self.refine = refine
        self.seed = seed

    def fit(self, X: ArrayLike, y: object = None) -> Self:  # noqa: ARG002 - part of the interface
        """Partition a table; ValueError if it has fewer than k rows, a missing or an infinite value."""
        self.labels_ = self._partition(self._validated(X, reset=True))
        return self

    def fit_transform(self, X: ArrayLike, y: object = None) -> Float64Matrix:  # noqa: ARG002 - part of the interface
        """Partition a table and return for each row the mean of its cluster, shape (n, d)."""
        values = self._validated(X, reset=True)
        self.labels_ = self._partition(values)
        return _means(values, self.labels_)

    def transform(self, X: ArrayLike) -> Float64Matrix:
        """Partition another table of the same columns by itself, and return for each row the mean of its cluster."""
        check_is_fitted(self)
        values = self._validated(X, reset=False)
        return _means(values, self._partition(values))

    def _validated(self, X: ArrayLike, *, reset: bool) -> Float64Matrix:
        fewest = int(self.k) if is_integer(self.k) else 1  # else the partition says what is wrong with k
        _refuse_texts(X)
        values: Any = validate_data(self, X, dtype=np.float64, ensure_min_samples=max(fewest, 1), reset=reset)
        return np.ascontiguousarray(values)

    def _partition(self, values: Float64Matrix) -> Int32Vector:
        return microaggregate(values, self.k, self.algorithm, self.refine, self.seed)


def _refuse_texts(X: ArrayLike) -> None:
    """ValueError for texts that are no numbers; that of scikit-learn would show one."""
    if issparse(X) or (array := np.asarray(X)).dtype.kind not in "OUS":
        return
    try:
        array.astype(np.float64)
    except ValueError:
        raise ValueError("a column holds texts; give numbers only") from None
    except TypeError:
        return


def _means(values: Float64Matrix, labels: Int32Vector) -> Float64Matrix:
    """Return for each row the mean of its cluster (n, d)."""
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
    sums = np.add.reduceat(values[order], np.append(0, np.cumsum(sizes)[:-1]), axis=0)
    means: Float64Matrix = (sums / sizes[:, np.newaxis])[labels]
    return means
