"""The Python interface to stream microaggregation: raw values in, clusters with their centroids out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shoal.arrays import LARGEST, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.errors import ParameterError
from shoal.kernels.jit import compile_if_large
from shoal.protection.value_codes import RecentCodes
from shoal.scales import exact_means
from shoal.streams.clusterer import StreamClusterer, code_distance_faults, parameter_faults
from shoal.streams.held_records import Decisions
from shoal.streams.steering import are_weights, parse_position
from shoal.tables.arguments import (
    ConfidentialEncoder,
    Diversity,
    ProtectedCodes,
    Reference,
    as_array,
    default_value_share,
    normal_form,
    parse_diversity,
    parse_references,
    protection_faults,
)


@dataclass(frozen=True, slots=True)
class Released:
    """Clusters that one call of `StreamAggregator` decided. All arrays are new and belong to the caller.

    Attributes
    ----------
    positions : int64 (E,)
        Members of the clusters by their number in the stream, from 0; cluster after cluster, ascending in each.
    offsets : int64 (G + 1,)
        Cluster g is ``positions[offsets[g]:offsets[g + 1]]``.
    centroids : float64 (G, d)
        Means of the values, in the units in which they were pushed. Category columns have none.
    suppressed : int64 (S,)
        Records that are in no cluster: fewer than k subjects were held when they were due for decision, or no cluster
        satisfied ``l``, ``t`` and ``max_value_share``.
    """

    positions: Int64Vector
    offsets: Int64Vector
    centroids: Float64Matrix
    suppressed: Int64Vector


class StreamAggregator:
    """Stream microaggregation with a delay of at most delta records, for use from Python.

    Parameters
    ----------
    k : int
        Distinct subjects in a cluster, 2 or more.
    delta : int
        Largest delay in records, k - 1 or more.
    rule : str
        ``nearest``, ``greedy``, ``awo`` (opportunity-cost growth), ``block``, or ``auto``: ``block`` for k of 7 or
        more and with ``l``, ``t`` or ``max_value_share``, else ``awo``.
    position : float or mapping
        Weight omega_p of the position of a record, 0 or more. One position counts as much as a difference of omega_p in
        the weighted values. Or
        ``{"target_span": S}``: after each cluster the weight is adjusted to keep a mean excess span of S records.
    weights : sequence of float, optional
        One per attribute, above 0. They multiply the values for distances only.
    max_share : float
        Largest share of one subject in a cluster, from 1/k to 1.
    code_distances : sequence of float, optional
        One per category column: the squared distance of two records whose codes differ there, in squared units of the
        weighted values. For a category that counts as much as an attribute with range 1 and weight w, it is w squared.
    l : int or mapping, optional
        l-diversity of the confidential values of each cluster: a number of distinct values (also ``{"distinct": l}``),
        ``{"entropy": l}``, or ``{"recursive": [c, l]}``.
    max_value_share : float, optional
        Largest share of one confidential value in a cluster. By default 0.5 with a number of distinct values, else 1.
    t : float, optional
        t-closeness: largest earth mover's distance between the confidential values of a cluster and the reference.
    reference : mapping or sequence of mappings, optional
        Share of each value of a confidential attribute, for each attribute; required with ``t``. If all values are
        numbers or None, neighbouring values are equally far apart; else any two values are.

    Raises
    ------
    ParameterError
        One or more parameters are outside their domain; the message names all of them.

    Notes
    -----
    Values are not rescaled: give attributes of comparable ranges, or weights. Squares of differences below 1e-160
    underflow to 0, so that values as small as that need a weight, too. Guarantees, cost and source are those of
    `StreamClusterer`. Memory also holds the values of up to 2 (delta + block) records.

    Examples
    --------
    >>> stream = StreamAggregator(k=2, delta=2)
    >>> out = stream.push([[0.0], [5.0], [1.0]])
    >>> out.positions.tolist(), out.centroids.tolist()
    ([0, 2], [[0.5]])
    >>> stream.flush().suppressed.tolist()
    [1]
    >>> stream = StreamAggregator(k=2, delta=2, code_distances=[1.0])
    >>> stream.push([[0.0], [0.1], [0.5]], codes=[[7], [8], [7]]).positions.tolist()
    [0, 2]
    """

    def __init__(
        self,
        k: int,
        delta: int,
        rule: str = "auto",
        position: float | Mapping[str, float] = 0.0,
        weights: Sequence[float] | None = None,
        max_share: float = 0.5,
        code_distances: Sequence[float] | Float64Vector | None = None,
        l: Diversity | None = None,  # noqa: E741 - the letter of the literature
        max_value_share: float | None = None,
        t: float | None = None,
        reference: Reference | Sequence[Reference] | None = None,
    ) -> None:
        steered: Any = parse_position(position)
        faults = parameter_faults(k, delta, rule, steered, max_share)
        if weights is not None and not (are_weights(weights) and len(weights)):
            faults.append("weights: must be finite numbers above 0, one per attribute")
        distances = np.zeros(0) if code_distances is None else np.asarray(code_distances)
        if distances.ndim != 1 or distances.dtype.kind not in "iuf":
            faults.append("code_distances: must be numbers, one per category column")
        else:
            distances = distances.astype(np.float64)
            faults += code_distance_faults(distances)
        faults += protection_faults(l, max_value_share, t, reference, delta)
        if faults:
            raise ParameterError("; ".join(faults))
        self._protects = not (l is None and max_value_share is None and t is None)
        self._values_of = ConfidentialEncoder(delta, parse_references(reference) if self._protects else [])
        self._protection = partial(
            self._values_of.diversity_rule,
            diversity=parse_diversity(l),
            max_value_share=default_value_share(l, max_value_share),
            t=t,
        )
        self._make = partial(
            StreamClusterer,
            k,
            delta,
            rule=rule,
            position=steered,
            max_share=max_share,
            code_distances=distances,
        )
        self._columns = len(distances)
        self._weights = None if weights is None else np.asarray(weights, np.float64)
        self._clusterer: StreamClusterer | None = None
        self._encoder = SubjectEncoder(delta)
        self._delta = delta
        self._values = np.zeros((1, 0))

    def push(
        self,
        values: ArrayLike,
        subjects: ArrayLike | None = None,
        confidential: ArrayLike | Sequence[object] | None = None,
        codes: ArrayLike | None = None,
    ) -> Released:
        """Add records and return the clusters that are decided.

        Parameters
        ----------
        values : array_like of float64, shape (n, d)
            Numeric quasi-identifiers, finite, times the weights at most 1e150 in absolute value; d is that of the first
            call, 1 or more, with category columns 0 or more. Not modified.
        subjects : array_like of int or str, shape (n,), optional
            Subject of each record. Strings are compared as in record files; see `SubjectEncoder`. If omitted (then in
            all calls), each record is a subject of its own.
        confidential : array_like of str, number or None, shape (n,) or (n, q), optional
            Values of the q confidential attributes that ``l``, ``max_value_share`` and ``t`` apply to; required with
            one of these. Numbers are compared by value, texts without surrounding whitespace, and a text that is a
            number as that number. None and NaN are one value: missing. Without these parameters only the length is
            checked.
        codes : array_like of int, shape (n, c), optional
            Code of each record in each category column; required if there are ``code_distances``. Only equality counts.

        Returns
        -------
        Released
            Clusters in the order of decision.

        Raises
        ------
        ParameterError
            The records are not valid; nothing has changed.
        GuaranteeError
            A decision violates an invariant. This call and all later ones raise.
        """
        matrix = self._matrix(values)
        count, width = matrix.shape
        protected = self._protected(confidential, count)
        clusterer = self._clusterer or self._new(width, protected)
        subject_codes = None if subjects is None else self._encoder.encode(subjects, count)
        first = clusterer.next_position
        value_codes, bins = (None, None) if protected is None else protected
        compile_if_large(first + count)
        decided = clusterer.push(
            self._coordinates(matrix), subject_codes, codes=self._codes(codes, count), values=value_codes, bins=bins
        )
        self._clusterer = clusterer
        self._encoder.remember(count)
        self._values_of.remember(count)
        self._store(matrix, first)
        return self._released(decided)

    def flush(self) -> Released:
        """Decide on all held records, as at the end of the stream; see `StreamClusterer.flush`."""
        clusterer = self._clusterer or self._make(1)
        return self._released(clusterer.flush())

    def _new(self, width: int, protected: ProtectedCodes | None) -> StreamClusterer:
        """Return the clusterer of the stream, whose first block has these protected attributes."""
        if protected is None:
            return self._make(width)
        attributes = protected[0].shape[1]
        return self._make(width, diversity=self._protection(attributes), protected=attributes)

    def _protected(self, confidential: ArrayLike | Sequence[object] | None, count: int) -> ProtectedCodes | None:
        """Return the value codes and bins of confidential values; None if nothing protects them."""
        if not self._protects:
            if confidential is not None and as_array(confidential, "confidential").shape[:1] != (count,):
                raise ParameterError(f"confidential: must have length {count}")
            return None
        if confidential is None:
            raise ParameterError("confidential: missing, l, max_value_share and t apply to it")
        return self._values_of.encode(confidential, count)

    def _matrix(self, values: ArrayLike) -> Float64Matrix:
        given = as_array(values, "values")
        is_table = given.ndim == 2 and given.dtype.kind in "iuf"  # noqa: PLR2004 - rows and columns
        if not is_table or not (given.shape[1] or self._columns):
            raise ParameterError("values: must be numbers, shape (n, d)")
        if self._weights is not None and given.shape[1] != len(self._weights):
            raise ParameterError(f"values: must have {len(self._weights)} columns, one per weight")
        return np.ascontiguousarray(given, np.float64)

    def _codes(self, codes: ArrayLike | None, count: int) -> Int64Matrix | None:
        if codes is None:
            return None
        given = as_array(codes, "codes")
        if given.dtype.kind not in "iu" or given.shape != (count, self._columns):
            raise ParameterError(f"codes: must be integers, shape ({count}, {self._columns})")
        return given.astype(np.int64)

    def _coordinates(self, matrix: Float64Matrix) -> Float64Matrix:
        """Return the values times the weights."""
        with np.errstate(over="ignore"):  # an infinite product is refused
            coordinates = matrix if self._weights is None else matrix * self._weights
        if not (np.abs(coordinates) <= LARGEST).all():
            raise ParameterError(f"values: must be finite, and times the weights at most {LARGEST:g}; scale them")
        return coordinates

    def _store(self, matrix: Float64Matrix, first: int) -> None:
        """Store values in a ring buffer by their positions, from ``first`` on. Held records are at most delta older."""
        older, (count, width) = min(first, self._delta), matrix.shape
        if older + count > len(self._values) or width != self._values.shape[1]:
            values = np.zeros((1 << (older + count).bit_length(), width))
            if older:
                held = np.arange(first - older, first)
                values[held % len(values)] = self._values[held % len(self._values)]
            self._values = values
        self._values[np.arange(first, first + count) % len(self._values)] = matrix

    def _released(self, decided: Decisions) -> Released:
        members = self._values[decided.positions % len(self._values)]
        return Released(
            decided.positions, decided.cluster_bounds, exact_means(members, decided.cluster_bounds), decided.suppressed
        )


class SubjectEncoder:
    """Encodes subjects as integers: integers as themselves, strings in the order of their first occurrence.

    Strings are compared without surrounding whitespace, in Unicode's composed form (NFC), and numbers by their value. A
    string keeps its code for at least ``delta`` records after its last occurrence (`RecentCodes`).
    """

    def __init__(self, delta: int) -> None:
        self._codes = RecentCodes(delta)
        self._kind = self._pending_kind = ""

    def encode(self, subjects: ArrayLike, count: int) -> Int64Vector:
        """Return one code per subject. Call `remember` once the records have been accepted."""
        given = as_array(subjects, "subjects")
        if given.dtype == object and all(isinstance(name, str) for name in given.ravel()):
            given = given.astype(np.str_)
        kind = {"i": "integers", "u": "integers", "U": "strings"}.get(given.dtype.kind)
        if kind is None or given.shape != (count,):
            raise ParameterError(f"subjects: must be integers or strings, shape ({count},)")
        if self._kind not in {"", kind}:
            raise ParameterError(f"subjects: {kind} in this block, {self._kind} before")
        self._pending_kind = kind
        if kind == "integers":
            return given.astype(np.int64)
        return np.array([self._codes.code_of(normal_form(name)) for name in given.tolist()], np.int64)

    def remember(self, count: int) -> None:
        """Count accepted records. Strings without an occurrence among the last delta records are dropped eventually."""
        if count:
            self._kind = self._pending_kind
        self._codes.remember(count)
