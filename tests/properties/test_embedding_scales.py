"""Distances of the embedding are those of the taxonomy; published values do not depend on the order of members."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.audit.scales import TaxonomyTree, published_values
from shoal.policy import Scale, Taxonomy
from shoal.scales import CategoryIndex, Embedding
from support.scales import attribute, block_of, policy_with

pytestmark = pytest.mark.property


@st.composite
def taxonomies(draw: st.DrawFn) -> Taxonomy:
    """Return a random tree with equally deep leaves; some inner nodes have one child.

    All levels share their names, also with the root: only a level and a name are a node.
    """
    levels = draw(st.integers(1, 4))
    paths: list[tuple[str, ...]] = [("0",)]
    for _ in range(levels):
        parents = [path for path in paths for _ in range(draw(st.integers(1, 3)))]
        names = draw(st.permutations(range(len(parents))))
        paths = [(str(name), *path) for name, path in zip(names, parents, strict=True)]
    return Taxonomy(tuple(path[:-1] for path in paths), "0")


UNKNOWN = ["no leaf", "another"]


def paths_of(names: list[str], taxonomy: Taxonomy) -> list[tuple[str, ...]]:
    """Return the path of each category below the root. A category that the taxonomy lacks is on all levels."""
    paths = {path[0]: path for path in taxonomy.paths}
    return [paths.get(name, (f"own {name}",) * taxonomy.levels) for name in names]


def height(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Return the height of the lowest common ancestor: half the number of edges on the path between two leaves."""
    edges = set(pairwise(enumerate((*one, "0")))) ^ set(pairwise(enumerate((*other, "0"))))
    return len(edges) // 2


@given(taxonomies(), st.data())
def test_squared_distances_are_path_lengths_of_the_tree(taxonomy: Taxonomy, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from([*taxonomy.leaves, *UNKNOWN]), min_size=2, max_size=12))
    paths = paths_of(names, taxonomy)
    policy = policy_with(attribute("a", Scale.NOMINAL, taxonomy=taxonomy, weight=3.0))
    index = CategoryIndex(policy)
    values = index.encode(block_of(policy, [[f'"{name}"'] for name in names])).values
    embedding = Embedding.of(policy, None, index.trees, index.texts)
    codes, points = embedding.codes(values), embedding.dense(values)
    for i, j in combinations(range(len(names)), 2):
        expected = 9 * height(paths[i], paths[j]) / taxonomy.levels
        assert float(embedding.code_distances[codes[i] != codes[j]].sum()) == pytest.approx(expected)
        assert float(((points[i] - points[j]) ** 2).sum()) == pytest.approx(expected)


def plain_mode(names: list[str]) -> str:
    counts = Counter(names)
    return min(counts, key=lambda name: (-counts[name], f'"{name}"'.encode()))


def plain_nodes(names: list[str], taxonomy: Taxonomy) -> tuple[str, str]:
    """Return lowest common ancestor and tree median, from the root down."""
    down = [path[::-1] for path in paths_of(names, taxonomy)]
    ancestor = median = "0"
    for level in range(taxonomy.levels):
        counts = Counter(path[level] for path in down)
        name, count = counts.most_common(1)[0]
        ancestor = name if count == len(names) else ancestor
        median = name if 2 * count > len(names) else median
    return ancestor.removeprefix("own "), median.removeprefix("own ")


@given(taxonomies(), st.data())
def test_the_judge_finds_the_same_nodes_and_their_distances(taxonomy: Taxonomy, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from([*taxonomy.leaves, *UNKNOWN]), min_size=1, max_size=9))
    tree = TaxonomyTree(taxonomy)
    nodes = tree.ancestor(names), tree.median(names)
    assert tuple(node.name for node in nodes) == plain_nodes(names, taxonomy)
    paths = paths_of(names, taxonomy)
    for node in nodes:
        is_root = node.level == taxonomy.levels
        below = next(path for path in paths if is_root or path[node.level].removeprefix("own ") == node.name)
        for name, path in zip(names, paths, strict=True):
            common = [level for level in range(node.level, taxonomy.levels) if path[level] == below[level]]
            assert tree.distance(name, node) == Fraction(min(common, default=taxonomy.levels), taxonomy.levels)


@given(taxonomies(), st.data())
def test_published_nodes_equal_a_plain_computation_in_any_order(taxonomy: Taxonomy, data: st.DataObject) -> None:
    leaves = list(taxonomy.leaves)
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


@given(st.data(), st.sampled_from(["group", "mean"]))
def test_engine_and_judge_publish_a_value_if_more_than_half_of_the_people_have_one(
    data: st.DataObject, missing: str
) -> None:
    record = st.tuples(st.integers(0, 5), st.none() | st.integers(0, 9))
    clusters = data.draw(st.lists(st.lists(record, min_size=1, max_size=9), min_size=1, max_size=5))
    rank = attribute("rank", Scale.ORDINAL, order=tuple("abcdefghij"), missing=missing)
    policy = policy_with(rank, attribute("number", Scale.NUMERIC, bounds=(0.0, 9.0), integer=True, missing=missing))
    values = block_of(policy, [[value, value] for cluster in clusters for _, value in cluster]).values
    people = np.array([who for cluster in clusters for who, _ in cluster])
    bounds = np.cumsum([0, *map(len, clusters)])
    texts = Embedding.of(policy, None).published(values, bounds, people).texts
    judged = published_values(policy, "jsonl", table=False, has_table_grids=False)
    for cluster, shown, start, end in zip(clusters, texts, bounds[:-1], bounds[1:], strict=True):
        with_value = {who for who, value in cluster if value is not None}
        is_null = 2 * len(with_value) <= len({who for who, _ in cluster})
        assert [text == "null" for text in shown] == [is_null, is_null]
        of_one = people[start:end], np.array([end - start])
        columns = values[start:end].T
        assert [one.of_clusters(own, *of_one)[0] for one, own in zip(judged, columns, strict=True)] == shown
