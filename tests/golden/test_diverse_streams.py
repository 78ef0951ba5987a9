"""A stream that holds a whole published table and is flushed gives the clusters of the table, with t and with l."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from shoal.arrays import Float64Matrix, Int32Vector, Int64Vector
from shoal.protection import DISTINCT, ORDERED, LDiversity, ValueReference, build_diversity_rule
from shoal.streams import StreamClusterer
from shoal.tables import ClusterConstraints, ConfidentialAttribute, microaggregate
from support.published_data import read_rows

pytestmark = pytest.mark.golden


def scaled(columns: list[list[float]]) -> Float64Matrix:
    values = np.column_stack(columns)
    return np.ascontiguousarray((values - values.min(axis=0)) / np.ptp(values, axis=0))


def clusters_of(labels: Int32Vector) -> list[list[int]]:
    return sorted(np.flatnonzero(labels == label).tolist() for label in range(labels.max() + 1))


def flushed(stream: StreamClusterer, values: Float64Matrix, codes: Int64Vector) -> list[list[int]]:
    bins = np.ascontiguousarray(codes[:, None])
    assert not len(stream.push(values, values=bins, bins=bins).positions)
    decided = stream.flush()
    return sorted(members.tolist() for members in np.split(decided.positions, decided.cluster_bounds[1:-1]))


@pytest.mark.parametrize("name", ["PCD", "MCD"])
def test_a_flushed_stream_is_as_close_to_the_reference_as_the_table(name: str, data_dir: Path) -> None:
    if name == "PCD":
        values = scaled([list(map(float, range(1000)))])
        codes = np.arange(1000)
    else:
        rows = read_rows(data_dir, "census")
        values = scaled([[float(row[column]) for row in rows] for column in ("TAXINC", "POTHVAL")])
        codes = np.unique([float(row["FEDTAX"]) for row in rows], return_inverse=True)[1]
    reference = ValueReference(ORDERED, np.bincount(codes))
    stream = StreamClusterer(3, 1100, values.shape[1], rule="block", diversity=build_diversity_rule([reference], t=0.1))
    constraints = ClusterConstraints(
        confidential=(ConfidentialAttribute(codes, ordered=True, reference=reference),), t=0.1
    )
    labels = microaggregate(values, 3, "auto", "descent", constraints=constraints)
    clusters = flushed(stream, values, codes)
    assert clusters == clusters_of(labels)
    assert max(distance(codes[members], codes) for members in clusters) <= 0.1 + 1e-12


def distance(members: Int64Vector, table: Int64Vector) -> float:
    """The ordered distance, from its definition."""
    m = int(table.max()) + 1
    shares = np.bincount(members, minlength=m) / len(members) - np.bincount(table) / len(table)
    return float(np.abs(np.cumsum(shares))[:-1].sum() / (m - 1))


def test_a_flushed_stream_is_as_diverse_as_the_table(data_dir: Path) -> None:
    rows = read_rows(data_dir, "census")
    values = scaled([[float(row[column]) for row in rows] for column in ("TAXINC", "POTHVAL", "WSALVAL")])
    codes = np.array([min(int(float(row["FEDTAX"])) // 5000, 3) for row in rows])
    rule = build_diversity_rule(l=LDiversity(DISTINCT, 3), max_value_share=0.6)
    stream = StreamClusterer(10, 1100, 3, rule="block", diversity=rule)
    constraints = ClusterConstraints(
        confidential=(ConfidentialAttribute(codes, ordered=False),), l=LDiversity(DISTINCT, 3), max_value_share=0.6
    )
    labels = microaggregate(values, 10, "mdav", "descent", constraints=constraints)
    clusters = flushed(stream, values, codes)
    assert clusters == clusters_of(labels)
    for members in clusters:
        counts = np.bincount(codes[members])
        assert np.count_nonzero(counts) >= 3
        assert counts.max() <= 0.6 * len(members)
