"""Distances of the embedding are those of the taxonomy; published values do not depend on the order of members."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.clustering.embedding import Embedding
from shoal.pipeline.category_index import CategoryIndex
from shoal.policy import Scale, Taxonomy
from support.scales import attribute, block_of, policy_with

pytestmark = pytest.mark.property


@st.composite
def taxonomies(draw: st.DrawFn) -> Taxonomy:
    """Return a random tree with equally deep leaves; some inner nodes have one child."""
    levels = draw(st.integers(1, 4))
    paths: list[tuple[str, ...]] = [("",)]
    for level in range(levels, 0, -1):
        paths = [
            (f"{level}.{number}.{child}", *path)
            for number, path in enumerate(paths)
            for child in range(draw(st.integers(1, 3)))
        ]
    return Taxonomy(tuple(path[:-1] for path in paths), "all")


def height(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Return the height of the lowest common ancestor: half the number of edges on the path between two leaves."""
    edges = set(pairwise(enumerate((*one, "all")))) ^ set(pairwise(enumerate((*other, "all"))))
    return len(edges) // 2


@given(taxonomies(), st.data())
def test_squared_distances_are_path_lengths_of_the_tree(taxonomy: Taxonomy, data: st.DataObject) -> None:
    paths = {path[0]: path for path in taxonomy.paths}
    names = data.draw(st.lists(st.sampled_from([*paths, "no leaf", "another"]), min_size=2, max_size=12))
    policy = policy_with(attribute("a", Scale.NOMINAL, taxonomy=taxonomy, weight=3.0))
    index = CategoryIndex(policy)
    values = index.encode(block_of(policy, [[f'"{name}"'] for name in names])).values
    embedding = Embedding.of(policy, None, index.trees, index.texts)
    codes, points = embedding.codes(values), embedding.dense(values)
    for i, j in combinations(range(len(names)), 2):
        one, other = (paths.get(names[n], (names[n],) * taxonomy.levels) for n in (i, j))
        expected = 9 * height(one, other) / taxonomy.levels
        assert float(embedding.code_distances[codes[i] != codes[j]].sum()) == pytest.approx(expected)
        assert float(((points[i] - points[j]) ** 2).sum()) == pytest.approx(expected)


def plain_mode(names: list[str]) -> str:
    counts = Counter(names)
    return min(counts, key=lambda name: (-counts[name], f'"{name}"'.encode()))


def plain_nodes(names: list[str], taxonomy: Taxonomy) -> tuple[str, str]:
    """Return lowest common ancestor and tree median, from the root down."""
    paths = {path[0]: (*path, "all") for path in taxonomy.paths}
    down = [paths.get(name, (*[name] * taxonomy.levels, "all"))[::-1] for name in names]
    ancestor = median = "all"
    for level in range(1, taxonomy.levels + 1):
        counts = Counter(path[level] for path in down)
        name, count = counts.most_common(1)[0]
        ancestor = name if count == len(names) else ancestor
        median = name if 2 * count > len(names) else median
    return ancestor, median


@given(taxonomies(), st.data())
def test_published_nodes_equal_a_plain_computation_in_any_order(taxonomy: Taxonomy, data: st.DataObject) -> None:
    leaves = [path[0] for path in taxonomy.paths]
    clusters = data.draw(
        st.lists(st.lists(st.sampled_from([*leaves, "no leaf"]), min_size=1, max_size=9), min_size=1, max_size=5)
    )
    orders = data.draw(st.permutations(range(9)))
    shuffled = [[cluster[i] for i in orders if i < len(cluster)] for cluster in clusters]
    attributes = [attribute(p, Scale.NOMINAL, taxonomy=taxonomy, publish=p) for p in ("ancestor", "median", "mode")]
    policy = policy_with(*attributes, attribute("rank", Scale.ORDINAL, order=tuple("abcdefghijkl")))
    ranks = {name: number % 12 for number, name in enumerate([*leaves, "no leaf"])}
    found = []
    for arranged in (clusters, shuffled):
        rows: list[list[Any]] = [[*[f'"{name}"'] * 3, ranks[name]] for cluster in arranged for name in cluster]
        index = CategoryIndex(policy)
        values = index.encode(block_of(policy, rows)).values
        embedding = Embedding.of(policy, None, index.trees, index.texts)
        found.append(embedding.published(values, np.cumsum([0, *map(len, clusters)])).texts)
    assert found[0] == found[1]
    for cluster, texts in zip(clusters, found[0], strict=True):
        ancestor, median = plain_nodes(cluster, taxonomy)
        lower_median = sorted(ranks[name] for name in cluster)[(len(cluster) - 1) // 2]
        names = [ancestor, median, plain_mode(cluster), "abcdefghijkl"[lower_median]]
        assert texts == [f'"{name}"' for name in names]
