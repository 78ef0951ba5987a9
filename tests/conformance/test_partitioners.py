"""Every algorithm for tables with every check, and against a plain Python implementation, label for label."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from oracle import partitions as plain
from shoal.arrays import Float64Matrix, Int32Vector
from shoal.errors import ParameterError
from shoal.tables import (
    ALGORITHMS,
    PARAMETER_RANGES,
    T_CLOSE_ALGORITHMS,
    check_parameters,
    microaggregate,
    parameters_of,
)
from shoal.tables.hilbert import WORD_BITS, curve_keys, order_along_curve
from shoal.tables.mdav import mdav_by_scan, mdav_by_tree
from support.constrained_tables import clusters_of, shapes
from support.input_size import sized

pytestmark = pytest.mark.conformance

QUICK = {"genetic": {"generations": sized(20, 5)}}
"""Without compilation the default number of generations takes minutes."""


def run(name: str, table: Float64Matrix, k: int, seed: int = 0) -> Int32Vector:
    return microaggregate(table, k, name, seed=seed, parameters=QUICK.get(name))


def loss_of(table: Float64Matrix, labels: Int32Vector) -> float:
    return plain.loss(table.tolist(), clusters_of(labels))


@pytest.fixture(params=sorted(ALGORITHMS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=sorted(shapes()))
def shape(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def is_applicable(name: str, table: Float64Matrix) -> bool:
    return name != "optimal" or table.shape[1] == 1


def test_cluster_sizes_are_within_their_bounds(name: str, shape: str) -> None:
    table = shapes()[shape] if is_applicable(name, shapes()[shape]) else shapes()["one attribute"]
    for k in (2, 3, 10, 30, 31, 61):  # fewer than 2k records are one cluster
        labels = run(name, table, k)
        sizes = np.bincount(labels)
        assert labels.shape == (61,)
        assert labels.dtype == np.int32
        assert sizes.min() >= k
        assert len(sizes) == 1 or k < 31
        assert sizes.max() <= (3 * k - 2 if name == "vmdav" else 2 * k - 1)


def test_labels_depend_on_the_seed_and_the_values_only_and_the_table_is_not_modified(name: str) -> None:
    table = shapes()["one attribute" if name == "optimal" else "heavy tails"]
    before, labels = table.copy(), run(name, table, 4, seed=7).tolist()
    assert run(name, table, 4, seed=7).tolist() == labels
    assert run(name, np.asfortranarray(table), 4, seed=7).tolist() == labels
    assert table.tolist() == before.tolist()


def test_mdav_equals_the_plain_implementation(shape: str) -> None:
    table = shapes()[shape]
    for k in (2, 3, 7, 20, 31):
        expected = plain.mdav(table.tolist(), k)
        assert clusters_of(mdav_by_scan(table, k)) == [sorted(cluster) for cluster in expected]


@pytest.mark.parametrize("width", [1, *(pytest.param(width, marks=pytest.mark.untraced) for width in (3, 32))])
def test_mdav_by_tree_gives_the_labels_of_mdav_by_scan(shape: str, width: int) -> None:
    for size, k in product(sized((12, 61, 300, 2000), (12, 61, 120)), (2, 3, 10)):
        table = shapes(size)[shape]
        assert mdav_by_tree(table, k, width).tolist() == mdav_by_scan(table, k).tolist()


def test_md_equals_the_plain_implementation(shape: str) -> None:
    table = shapes(40)[shape]
    for k in (2, 3, 7, 20, 21):
        assert clusters_of(run("md", table, k)) == [sorted(cluster) for cluster in plain.md(table.tolist(), k)]


@pytest.mark.parametrize("gamma", [0.0, 0.2, 1.1, 10.0])
def test_vmdav_equals_the_plain_implementation(shape: str, gamma: float) -> None:
    table = shapes(40)[shape]
    for k in (2, 3, 7, 21):
        labels = microaggregate(table, k, "vmdav", parameters={"gamma": gamma})
        assert clusters_of(labels) == [sorted(cluster) for cluster in plain.vmdav(table.tolist(), k, gamma)]


@pytest.mark.parametrize(("bits", "d"), [(1, 1), (4, 1), (1, 2), (4, 2), (3, 3), (2, 4), (1, 6)])
def test_the_curve_visits_every_cell_once_and_consecutive_cells_are_neighbours(bits: int, d: int) -> None:
    cells = np.array(list(product(range(2**bits), repeat=d)), np.float64)
    keys = curve_keys(cells, bits)
    path = cells[np.lexsort((keys[1], keys[0]))]
    assert sorted((keys[0].astype(object) * 2**WORD_BITS + keys[1]).tolist()) == sorted(
        set((keys[0].astype(object) * 2**WORD_BITS + keys[1]).tolist())
    )
    assert {float(np.abs(after - before).sum()) for before, after in pairwise(path)} <= {1.0}


def test_hilbert_is_the_optimal_partition_along_its_order(shape: str) -> None:
    size = sized(40, 24)
    table = shapes(size)[shape]
    order = order_along_curve(table)
    for k in (2, 5, size // 2):
        labels = run("hilbert", table, k)
        assert (np.diff(labels[order]) >= 0).all()
        best = plain.best_along(table.tolist(), order.tolist(), k)
        assert loss_of(table, labels) == pytest.approx(best, rel=1e-9, abs=1e-300)


def test_optimal_has_the_least_loss_of_all_partitions() -> None:
    random = np.random.default_rng(3)
    for line in (random.random(9), random.integers(0, 4, 9), np.exp(4 * random.standard_normal(9)), np.zeros(9)):
        table = line[:, None].astype(np.float64)
        for k in (2, 3, 4):
            assert loss_of(table, run("optimal", table, k)) == pytest.approx(plain.best_of_all(table.tolist(), k))


def test_genetic_never_loses_more_than_mdav(shape: str) -> None:
    table = shapes()[shape]
    for k in (2, 3, 7):
        assert loss_of(table, run("genetic", table, k)) <= loss_of(table, run("mdav", table, k)) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("algorithm", "parameters", "message"),
    [
        ("best", {}, "use one of auto, md, mdav"),
        ("vmdav", {"gama": 1.0}, "no parameter 'gama', there is gamma"),
        ("vmdav", {"gamma": "much"}, "type float"),
        ("optimal", {}, "one attribute"),
        ("genetic", {"macro": 1}, "macro: must be from 2"),
        ("approximate", {"measure": "none"}, "measure"),
        ("strict", {}, r"needs privacy\.t"),
    ],
)
def test_unknown_names_and_wrong_parameters_are_refused_with_the_valid_ones(
    algorithm: str, parameters: dict[str, float | str], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        microaggregate(shapes()["uniform"], 3, algorithm, parameters=parameters)


@pytest.mark.parametrize("name", sorted({**ALGORITHMS, **T_CLOSE_ALGORITHMS}))
def test_every_numeric_parameter_has_a_range_that_contains_its_default(name: str) -> None:
    numbers = {key: value for key, value in parameters_of(name).items() if not isinstance(value, str)}
    ranges = PARAMETER_RANGES.get(name, {})
    assert numbers.keys() == ranges.keys()
    for key, default in numbers.items():
        least, most = ranges[key]
        assert least <= default <= most or default == np.inf
        check_parameters(name, {key: default})
        for value in (least, most):
            check_parameters(name, {key: type(default)(value)})
        for value in (least - 1, most * 2):
            with pytest.raises(ParameterError, match=f"{key}: must be from"):
                check_parameters(name, {key: type(default)(value)})
