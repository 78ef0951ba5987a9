"""Scale ``nominal``: categories without an order, as numbers: the nodes of a taxonomy, and one code for each held text.

A node is a number. A category has its code: 0 or more. Codes below the number of leaves are the leaves of the taxonomy,
in its order; a category with a greater code is a leaf of its own directly below the root. The root is -1, and all other
inner nodes are below -1. NaN stands for a missing value. Code numbers have no other meaning: only equality counts.

A flat list of categories is a taxonomy of one level, in which no leaf is known in advance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast

import msgspec
import numpy as np

from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Matrix, Int64Vector
from shoal.policy import Attribute, Policy, Scale, Taxonomy
from shoal.scales.numeric import INTEGER
from shoal.scales.scale import (
    INVALID,
    SCALES,
    AttributeScale,
    CategoryTexts,
    Publisher,
    ScaleColumn,
    ScaleFault,
    ScaleReader,
    cluster_of_each,
    json_text,
    text_of,
    whole_text,
)

ROOT_NODE = -1
"""Number of the root."""

NOT_CATEGORY = ScaleFault("not a text, truth value or whole number", "write categories as texts, or set scale: numeric")
NOT_IN_TAXONOMY = ScaleFault("not in the taxonomy", "add the category to the taxonomy, or set unknown: root")
_STRING = r'"(?:[^"\\\x00-\x1f\ud800-\udfff]|\\(?:["\\/bfnrt]|u00[01][0-9a-fA-F]))*+"'
"""The form that the encoder of categories writes: only control characters have an escape with a code."""


class NominalScale(AttributeScale, scale=Scale.NOMINAL):
    """Codes of one column per level of the taxonomy; a cluster publishes a mode, an ancestor or a tree median."""

    is_coded = True
    has_categories = True
    faults = (NOT_CATEGORY, NOT_IN_TAXONOMY)
    artificial_categories = ('"a"', '"b"', '"c"')

    def __init__(self, attribute: Attribute, tree: object = None, texts: CategoryTexts | None = None) -> None:
        super().__init__(attribute)
        self._given_tree = tree
        self._texts = {} if texts is None else texts  # not a copy: they grow with each block

    @cached_property
    def tree(self) -> CategoryTree:
        """The taxonomy."""
        given = self._given_tree
        return given if isinstance(given, CategoryTree) else _tree_of(self.attribute)

    @property
    def must_agree(self) -> bool:
        """Whether a common ancestor is published."""
        return self.attribute.publish == "ancestor"

    def code_distances(self, apart: float, missing: float) -> Float64Vector:  # noqa: ARG002 - a missing one is apart
        """Return equal parts, so that distances are those of a tree with equal edges."""
        return np.full(self.tree.levels, apart / self.tree.levels)

    def codes(self, values: Float64Vector) -> Int64Matrix:
        """Return the path of each category. A missing category differs from all others on all levels."""
        return self.tree.paths(values)

    def values_at(self, shares: Float64Vector) -> Float64Vector:
        """Return indices of the artificial categories."""
        return np.floor(shares * len(self.artificial_categories))

    @property
    def pattern(self) -> str:
        """A text, truth value or integer; with a taxonomy a text."""
        return _STRING if self.attribute.has_groups else f"{_STRING}|true|false|{INTEGER}"

    @property
    def off_scale(self) -> ScaleFault:
        """The value is no category, or the taxonomy must have it and does not."""
        is_closed = self.attribute.taxonomy is not None and self.attribute.unknown == "quarantine"
        return NOT_IN_TAXONOMY if is_closed else NOT_CATEGORY

    @property
    def published_types(self) -> set[type] | None:
        """Texts with a taxonomy; else those of the input."""
        return {str} if self.attribute.has_groups else None

    def reader(self, missing_values: Iterable[str], *, has_commas: bool = False) -> ScaleReader:
        """Return what numbers the categories of a block."""
        return _NominalReader(self.attribute, missing_values, has_commas=has_commas)

    def publisher(self, *, is_exact: bool, is_table: bool) -> Publisher:  # noqa: ARG002
        """Return what computes modes, ancestors or tree medians."""
        return _Categories(self.attribute.publish, self.tree, self._texts, is_table=is_table)

    def distances(self, values: Float64Vector, published: Float64Vector) -> Float64Vector:
        """Return the height of the lowest common ancestor over the number of levels; without a taxonomy 0 or 1."""
        found: Float64Vector = (self.tree.paths(values) != self.tree.paths(published)).mean(axis=1)
        return found


class _Coded(Protocol):
    """A block of records whose categories are numbered within the block."""

    @property
    def values(self) -> Float64Matrix: ...

    @property
    def categories(self) -> Sequence[Sequence[str]]: ...


AnyBlock = TypeVar("AnyBlock", bound=_Coded)


class CategoryIndex:
    """Gives each category of the attributes of a policy that have codes a code, and keeps its text.

    A block numbers its categories by itself (`Block.categories`). Leaves of a taxonomy have the first codes, in its
    order; other categories are numbered as they are read, so codes differ after a restart. ``trees`` are the
    taxonomies, and ``texts`` the texts by code, which grow with each block; both by attribute. Memory: see
    `HeldCodes`.
    """

    def __init__(self, policy: Policy) -> None:
        coded = [(i, a) for i, a in enumerate(policy.clustered) if SCALES[a.scale].is_coded]
        self.trees = {attribute.name: _tree_of(attribute) for _, attribute in coded}
        self._columns = [(i, a.name, HeldCodes(self.trees[a.name].leaf_texts)) for i, a in coded]
        self.texts: dict[str, CategoryTexts] = {name: codes.texts for _, name, codes in self._columns}

    def encode(self, block: AnyBlock) -> AnyBlock:
        """Return the block with codes instead of its own numbers of categories, and without ``categories``."""
        if not self._columns:
            return block
        values = block.values.copy()
        for (column, name, codes), categories in zip(self._columns, block.categories, strict=True):
            if len(categories):
                known = np.array([codes.code_of(text) for text in categories], np.float64)
                self.trees[name].add(codes, categories)
                missing = np.isnan(values[:, column])
                indices: Int64Vector = np.where(missing, 0, values[:, column]).astype(np.int64)
                values[:, column] = np.where(missing, np.nan, known[indices])
        return cast("AnyBlock", replace(cast("Any", block), values=values, categories=()))

    def count_unknown(self, block: _Coded) -> Counter[str]:
        """Count the values of a block that the taxonomy of their attribute lacks (``unknown: root``), by attribute."""
        found: Counter[str] = Counter()
        for (column, name, codes), categories in zip(self._columns, block.categories, strict=False):
            if self.trees[name].leaf_count:
                unknown = [i for i, text in enumerate(categories) if not codes.is_fixed(text)]
                if count := int(np.isin(block.values[:, column], unknown).sum()) if unknown else 0:
                    found[name] = count
        return found

    @property
    def is_large(self) -> bool:
        """Whether `drop_unused` would drop codes."""
        return any(codes.is_large for _, _, codes in self._columns)

    def drop_unused(self, held: Float64Matrix) -> None:
        """Drop codes that no value (n, d) has of the records whose published values are not computed yet."""
        for column, name, codes in self._columns:
            if codes.is_large:
                own = held[:, column]
                codes.drop_unused(set(own[~np.isnan(own)].astype(np.int64).tolist()))
                self.trees[name].drop_unused(codes)


FEWEST_TO_DROP = 512
"""Texts of an attribute from which codes without a held record are dropped."""


class HeldCodes:
    """Gives each text a code for as long as a record with it is held. No code is given twice.

    The ``fixed`` texts have the codes 0, 1, ... and keep them. Memory: if `drop_unused` is called for each block, about
    `FEWEST_TO_DROP` more, or as many as records are held.
    """

    def __init__(self, fixed: Iterable[str] = ()) -> None:
        self.texts = dict(enumerate(fixed))
        """Text of each code."""
        self._codes = {text: code for code, text in self.texts.items()}
        self._fixed = self._next = len(self.texts)
        self._limit = self._fixed + FEWEST_TO_DROP

    @property
    def is_large(self) -> bool:
        """Whether `drop_unused` should be called."""
        return len(self._codes) > self._limit

    def is_fixed(self, text: str) -> bool:
        """Return whether a text is one of the fixed ones."""
        return self._codes.get(text, self._fixed) < self._fixed

    def code_of(self, text: str) -> int:
        """Return the code of a text."""
        code = self._codes.get(text)
        if code is None:
            code, self._next = self._next, self._next + 1
            self._codes[text], self.texts[code] = code, text
        return code

    def drop_unused(self, used: Collection[int]) -> None:
        """Drop codes that no held record has. The number that stays is at most half of the next limit."""
        for text, code in [(text, code) for text, code in self._codes.items() if code >= self._fixed]:
            if code not in used:
                del self._codes[text], self.texts[code]
        self._limit = max(self._fixed + FEWEST_TO_DROP, 2 * len(self._codes))


_MISSING, _BELOW_NODE = -1, -2
"""Entries of a path: of a missing value on all levels, and of an inner node on the levels below it."""


class CategoryTree:
    """The taxonomy of one nominal attribute; without one, categories are equally far from each other.

    The path of a node has one entry per level, from the leaves up to the children of the root. Two categories have
    equal entries from the level of their lowest common ancestor on. So the number of different entries is the height of
    that ancestor, and the root's height is the number of levels.
    Memory: one row of integers per node, built once.
    """

    def __init__(self, taxonomy: Taxonomy | None) -> None:
        paths = () if taxonomy is None else taxonomy.paths
        self.levels = 1 if taxonomy is None else taxonomy.levels
        self.leaf_texts = [_json_string(path[0]) for path in paths]
        self._root_text = _json_string("*" if taxonomy is None else taxonomy.root)
        ids: list[dict[str, int]] = [{} for _ in range(self.levels)]
        leaves = [[known.setdefault(name, len(known)) for known, name in zip(ids, path, strict=True)] for path in paths]
        self._inner_texts = [_json_string(name) for known in ids[1:] for name in known]
        self._first_inner: Int64Vector = np.cumsum([0, *(len(known) for known in ids[1:])])
        rows = np.full((len(leaves) + 1 + len(self._inner_texts), self.levels), _BELOW_NODE, np.int64)
        rows[: len(leaves)] = np.array(leaves, np.int64).reshape(len(leaves), self.levels)
        for level in range(1, self.levels):
            first = len(leaves) + 1 + self._first_inner[level - 1]
            above = rows[: len(leaves), level:]
            rows[first + above[:, 0], level:] = above
        self._rows: Int64Matrix = rows

    def add(self, codes: HeldCodes, texts: Iterable[str]) -> None:
        """Learn the groups of categories, where these are not given in advance."""

    def drop_unused(self, codes: HeldCodes) -> None:
        """Forget the groups of categories that have no code any more."""

    @property
    def leaf_count(self) -> int:
        """Number of leaves of the taxonomy; 0 without one."""
        return len(self.leaf_texts)

    def paths(self, nodes: Float64Vector) -> Int64Matrix:
        """Return the paths of nodes (n, levels), from the leaves up. Entries have a meaning within their column only.

        A missing value (NaN) has its own entry on all levels, an inner node one on the levels below it.
        """
        missing = np.isnan(nodes)
        if not self.leaf_texts:
            # Every category is a leaf below the root.
            return np.where(missing, float(_MISSING), nodes + len(self._rows)).astype(np.int64)[:, None]
        numbers = np.where(missing, ROOT_NODE, nodes).astype(np.int64)
        rows = np.where(numbers < 0, self.leaf_count - 1 - numbers, numbers)
        unknown = numbers >= self.leaf_count
        paths: Int64Matrix = self._rows[np.where(unknown, self.leaf_count, rows)]
        paths[unknown] = (numbers[unknown] + len(self._rows))[:, None]
        paths[missing] = _MISSING
        return paths

    def is_inner(self, entries: Int64Vector) -> BoolVector:
        """Return whether entries of paths above level 0 are inner nodes, not missing or unknown values."""
        is_inner: BoolVector = (entries >= 0) & (entries < len(self._rows))
        return is_inner

    def node_at(self, level: int, entries: Int64Vector) -> Float64Vector:
        """Return the nodes of entries of paths at one level; above level 0 they must be those of inner nodes."""
        nodes: Int64Vector
        if level == 0:
            nodes = np.where(entries < self.leaf_count, entries, entries - len(self._rows))
        else:
            nodes = ROOT_NODE - 1 - self._first_inner[level - 1] - entries
        return np.asarray(nodes, np.float64)

    def inner_text(self, node: int) -> str:
        """Return the name of an inner node, as a JSON string."""
        return self._root_text if node == ROOT_NODE else self._inner_texts[ROOT_NODE - 1 - node]


_UNKNOWN = 1 << 40
"""First entry of categories of which no group is known: the artificial ones by which kernels are compiled."""


class _PrefixTree(CategoryTree):
    """A tree of texts whose groups are their first characters; it grows with the categories that are read.

    The entry of a category on level 0 is its code; that of a group, on any level, is its number. No number is given
    twice. Memory: one tuple for each held category and each of its groups.
    """

    def __init__(self, prefixes: Sequence[int]) -> None:
        super().__init__(None)
        self.levels = 1 + len(prefixes)
        self._prefixes = prefixes
        self._paths: dict[int, tuple[int, ...]] = {}
        self._groups: dict[tuple[int, str], int] = {}
        self._group_paths: dict[int, tuple[tuple[int, ...], str]] = {}
        self._next_group = 0

    def add(self, codes: HeldCodes, texts: Iterable[str]) -> None:
        """Learn the groups of categories. Cost: 1 µs for each new one."""
        for text in texts:
            code = codes.code_of(text)
            if code not in self._paths:
                name = msgspec.json.decode(text)
                self._paths[code] = (code, *self._path_of(name))

    def _path_of(self, name: str) -> tuple[int, ...]:
        """Return the numbers of the groups of a text, the lowest first."""
        path: tuple[int, ...] = ()
        for level in range(len(self._prefixes), 0, -1):
            key = level, name[: self._prefixes[level - 1]]
            if (group := self._groups.get(key)) is None:
                group, self._next_group = self._next_group, self._next_group + 1
                self._groups[key] = group
                self._group_paths[group] = (_BELOW_NODE,) * level + (group, *path), _json_string(key[1])
            path = (group, *path)
        return path

    def drop_unused(self, codes: HeldCodes) -> None:
        """Forget categories without a code, and groups without a category."""
        self._paths = {code: path for code, path in self._paths.items() if code in codes.texts}
        used = {group for path in self._paths.values() for group in path[1:]}
        self._groups = {key: group for key, group in self._groups.items() if group in used}
        self._group_paths = {group: path for group, path in self._group_paths.items() if group in used}

    def paths(self, nodes: Float64Vector) -> Int64Matrix:
        """Return the paths of nodes; see `CategoryTree.paths`. Cost: a sort, and 1 µs for each different node."""
        different, inverse = np.unique(np.where(np.isnan(nodes), np.inf, nodes), return_inverse=True)
        rows = np.array([self._path(node) for node in different.tolist()], np.int64).reshape(-1, self.levels)
        found: Int64Matrix = rows[inverse.reshape(-1)]
        return found

    def _path(self, node: float) -> tuple[int, ...]:
        if node == np.inf:
            return (_MISSING,) * self.levels
        if node == ROOT_NODE:
            return (_BELOW_NODE,) * self.levels
        if node < 0:
            return self._group_paths[ROOT_NODE - 1 - int(node)][0]
        return self._paths.get(int(node)) or (int(node) + _UNKNOWN,) * self.levels

    def is_inner(self, entries: Int64Vector) -> BoolVector:
        """Return whether entries above level 0 are groups; see `CategoryTree.is_inner`."""
        is_inner: BoolVector = (entries >= 0) & (entries < _UNKNOWN)
        return is_inner

    def node_at(self, level: int, entries: Int64Vector) -> Float64Vector:
        """Return the nodes of entries of paths at one level; see `CategoryTree.node_at`."""
        nodes = np.where(entries < _UNKNOWN, entries, entries - _UNKNOWN) if level == 0 else ROOT_NODE - 1 - entries
        return np.asarray(nodes, np.float64)

    def inner_text(self, node: int) -> str:
        """Return the first characters that name a group, as a JSON string."""
        return self._root_text if node == ROOT_NODE else self._group_paths[ROOT_NODE - 1 - node][1]


def _tree_of(attribute: Attribute) -> CategoryTree:
    return _PrefixTree(attribute.prefixes) if attribute.prefixes else CategoryTree(attribute.taxonomy)


def _json_string(name: str) -> str:
    """Return the text of a JSON string."""
    return msgspec.json.encode(name).decode()


class _Categories(Publisher):
    """The mode, the lowest common ancestor, or the tree median of categories.

    In a table, of equally frequent categories of a cluster that one is published which is most frequent in the table.
    Remaining ties, and all ties in a stream, go to the category whose text has the smaller UTF-8 bytes.

    References
    ----------
    .. [1] J. Domingo-Ferrer and V. Torra, "Ordinal, Continuous and Heterogeneous k-Anonymity Through
       Microaggregation", Data Mining and Knowledge Discovery 11(2), 2005. doi:10.1007/s10618-005-0007-5
    """

    def __init__(self, publish: str, tree: CategoryTree, texts: CategoryTexts, *, is_table: bool) -> None:
        self._publish = publish
        self._tree, self._texts, self._is_table = tree, texts, is_table
        self._table: tuple[Int64Vector, Int64Vector] | None = None

    def publish(self, values: Float64Vector, bounds: Int64Vector) -> tuple[list[str], Float64Vector]:
        """Return the published categories or inner nodes; the numbers are nodes of `CategoryTree`."""
        if self._publish == "mode":
            nodes = self._modes(values, bounds)
        elif self._publish == "ancestor":
            nodes = self._lowest_nodes(values, bounds, _is_one_node)
        else:
            nodes = self._lowest_nodes(values, bounds, _is_majority)
        tree, texts = self._tree, self._texts
        return [texts[node] if node >= 0 else tree.inner_text(node) for node in nodes.astype(np.int64).tolist()], nodes

    def _modes(self, values: Float64Vector, bounds: Int64Vector) -> Float64Vector:
        """Return the most frequent category of each cluster. Cost: O(E log E), and a sort of the distinct texts."""
        codes, inverse = np.unique(values.astype(np.int64), return_inverse=True)
        # str compares code points, which have the order of their UTF-8 bytes.
        by_text = sorted(range(len(codes)), key=[self._texts[code] for code in codes.tolist()].__getitem__)
        ranks = np.empty(len(codes), np.int64)
        ranks[by_text] = np.arange(len(codes))
        own = ranks[inverse]
        keys, counts = np.unique(cluster_of_each(bounds) * len(codes) + own, return_counts=True)
        clusters, found = np.divmod(keys, len(codes))
        frequency = self._frequency(codes)[by_text]
        order = np.lexsort((found, -frequency[found], -counts, clusters))
        first = order[np.searchsorted(clusters, np.arange(len(bounds) - 1))]
        modes: Float64Vector = codes[np.array(by_text)[found[first]]].astype(np.float64)
        return modes

    def count(self, values: Float64Vector) -> None:
        """Count the categories of a table, also those of clusters that publish none; ignored in a stream."""
        if self._is_table:
            self._table = np.unique(values.astype(np.int64), return_counts=True)

    def _frequency(self, codes: Int64Vector) -> Int64Vector:
        """Return how frequent categories are in the table that was counted; 0 in a stream."""
        if self._table is None:
            return np.zeros(len(codes), np.int64)
        known, counts = self._table
        return np.asarray(counts[np.searchsorted(known, codes)], np.int64)

    def _lowest_nodes(
        self,
        values: Float64Vector,
        bounds: Int64Vector,
        holds: Callable[[Int64Vector, Int64Vector], tuple[Int64Vector, BoolVector]],
    ) -> Float64Vector:
        """Return the lowest node of each cluster that ``holds`` enough of its members, else the root."""
        paths = self._tree.paths(values)
        nodes = np.full(len(bounds) - 1, float(ROOT_NODE))
        for level in range(self._tree.levels - 1, -1, -1):
            entries, found = holds(paths[:, level], bounds)
            # A category that the taxonomy lacks has no inner node above it; it is found again on level 0.
            inner = found & (self._tree.is_inner(entries) if level else found)
            nodes[inner] = self._tree.node_at(level, entries[inner])
        return nodes


def _is_one_node(entries: Int64Vector, bounds: Int64Vector) -> tuple[Int64Vector, BoolVector]:
    """Return the first node of each cluster, and whether it holds all members."""
    first = entries[bounds[:-1]]
    return first, np.logical_and.reduceat(entries == first.repeat(np.diff(bounds)), bounds[:-1])


def _is_majority(entries: Int64Vector, bounds: Int64Vector) -> tuple[Int64Vector, BoolVector]:
    """Return the middle node of each cluster in sorted order, and whether it holds more than half of the members."""
    sizes = np.diff(bounds)
    ordered = entries[np.lexsort((entries, cluster_of_each(bounds)))]
    middle = ordered[bounds[:-1] + sizes // 2]
    counts = np.add.reduceat((entries == middle.repeat(sizes)).astype(np.int64), bounds[:-1])
    return middle, 2 * counts > sizes


class _NominalReader(ScaleReader):
    """Indices of categories. Leaves of a taxonomy are matched by their texts, whatever the type of the value."""

    def _parse(self, column: Sequence[Any]) -> ScaleColumn:
        kinds = set(map(type, column))
        # A dict takes true and 1 for the same key.
        keys = column if len(kinds) <= 1 else list(zip(map(type, column), column, strict=True))
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        indexes: dict[str, float] = {}
        index_of = np.full(len(numbers), INVALID, dtype=np.float64)
        for key, number in numbers.items():
            category = self._category(key if len(kinds) == 1 else key[1])
            if category is not None:
                index_of[number] = indexes.setdefault(category, float(len(indexes)))
        distinct = np.fromiter(map(numbers.__getitem__, keys), np.int64, len(column))
        return ScaleColumn(index_of[distinct], list(indexes))

    def _parse_cells(self, cells: Sequence[str]) -> ScaleColumn:
        """Match 2.0 with a leaf 2, as in typed formats: programs write whole numbers with a point."""
        taxonomy = self.attribute.taxonomy
        if taxonomy is None:
            return self._parse(cells)
        others = [cell for cell in set(cells) if cell not in taxonomy.leaves]
        whole = {cell: text for cell in others if (text := whole_text(cell)) in taxonomy.leaves}
        return self._parse([whole.get(cell) or cell for cell in cells] if whole else cells)

    def _category(self, value: object) -> str | None:
        """Return the text of a value as a JSON scalar; None if the value is invalid."""
        text, taxonomy = text_of(value), self.attribute.taxonomy
        if self.attribute.prefixes:
            return None if text is None else json_text(text)
        if taxonomy is None:
            return json_text(value) if type(value) is str else text
        is_unknown = self.attribute.unknown == "quarantine" and text not in taxonomy.leaves
        return None if text is None or is_unknown else json_text(text)
