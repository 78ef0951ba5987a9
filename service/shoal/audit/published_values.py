"""What a cluster publishes of each quasi-identifier, by its scale, and which published values a policy allows.

Published values are compared as texts. The text of a number has a decimal point, and that of an empty cell in its place
is empty. The text of any other value is its JSON form: that of a cell of CSV is a JSON string.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence

from shoal.audit.arithmetic import ExactGrid
from shoal.audit.reading import Form, JsonNumber, json_text
from shoal.audit.scales import Categories, DecimalSign, Node, TaxonomyTree, TimeGrid
from shoal.policy import Attribute, Policy, Scale

__all__ = [
    "NO_VALUE",
    "PublishedCategories",
    "PublishedNumbers",
    "PublishedRanks",
    "PublishedTimes",
    "PublishedValues",
    "published_values",
]

NO_VALUE = "\x02"
"""Text of an unreadable value. Recomputed texts are JSON, numbers or cells, so it equals none of them."""


class PublishedValues(ABC):
    """The published values of one quasi-identifier.

    Parameters
    ----------
    attribute : Attribute
    form : {"csv", "jsonl"}
        Form of the release.
    table : bool
        Whether the release is one of a table.
    """

    is_number = False
    has_moments = False

    def __init__(self, attribute: Attribute, form: Form, *, table: bool) -> None:
        self.attribute = attribute
        self._is_csv, self._is_table = form == "csv", table
        self.missing = '""' if self._is_csv else "null"
        self._may_be_missing = attribute.may_be_missing

    def of_members(self, values: Sequence[float], categories: Categories | None = None) -> str:
        """Return the text that a cluster publishes.

        Parameters
        ----------
        values : sequence of float
            Of all members, at least one; NaN where a value is missing.
        categories : Categories, optional
            Of a nominal attribute: what the values stand for.
        """
        if not self._may_be_missing:
            return self._of_present(values, categories)
        present = [value for value in values if not math.isnan(value)]
        return self._of_present(present, categories) if 2 * len(present) > len(values) else self.missing

    def allows(self, text: str) -> bool:
        """Whether the policy allows a published text, apart from bounds."""
        return (self._may_be_missing and text == self.missing) or self._allows_present(text)

    def within_bounds(self, text: str) -> bool:
        """Whether a published text is missing or inside the bounds, widened by half a step on both sides."""
        return (self._may_be_missing and text == self.missing) or self._is_inside(text)

    def text_of(self, value: object) -> str:
        """Return the text of a value that was read from a released row; `NO_VALUE` if it has another type."""
        if self._is_csv:
            return json_text(str(value))
        if value is None:
            return "null"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, JsonNumber):
            return str(value)
        return json_text(value) if isinstance(value, str) else NO_VALUE

    def number_of(self, text: str) -> float:
        """Return a published number, or the milliseconds of a time; NaN if it is missing."""
        return math.nan if text == self.missing else self._number(text)

    def total_distance(self, values: Sequence[float], text: str, categories: Categories | None) -> float:
        """Return the sum over members of the distance in [0, 1] of a rank or category from the published one."""
        present = [value for value in values if not math.isnan(value)]
        # An empty cell can also be the category that is an empty text.
        if 2 * len(present) <= len(values):
            return float(len(present))
        return len(values) - len(present) + self._total_distance(present, text, categories or Categories())

    def _number(self, text: str) -> float:
        raise NotImplementedError

    def _total_distance(self, values: Sequence[float], text: str, categories: Categories) -> float:
        raise NotImplementedError

    @abstractmethod
    def _of_present(self, values: Sequence[float], categories: Categories | None) -> str:
        """Return the text of members that all have a value."""

    @abstractmethod
    def _allows_present(self, text: str) -> bool:
        """Whether the text is that of an allowed value."""

    def _is_inside(self, text: str) -> bool:  # noqa: ARG002 - categories have no bounds
        return True

    def _shown(self, json_text: str) -> str:
        """Return the text of a JSON scalar in the form of the release: a cell has the type of a string."""
        return f'"{json_text}"' if self._is_csv and not json_text.startswith('"') else json_text


class PublishedNumbers(PublishedValues):
    """Exact means on the grid of a numeric attribute."""

    is_number = True
    has_moments = True

    def __init__(
        self, attribute: Attribute, form: Form, *, table: bool, is_binary: bool = False, sign: DecimalSign | None = None
    ) -> None:
        super().__init__(attribute, form, table=table)
        self.missing = "" if self._is_csv else "null"
        self.grid = ExactGrid(attribute, table=table, is_binary=is_binary)
        self._sign = sign or DecimalSign()
        # A JSON number is read as `JsonNumber`, a quoted one as str. A cell is always str.
        self._type = str if self._is_csv else JsonNumber

    def text_of(self, value: object) -> str:
        """Return a number with a decimal point."""
        if isinstance(value, self._type):
            return self._sign.to_point(str(value))
        return "null" if value is None else NO_VALUE

    def _of_present(self, values: Sequence[float], categories: Categories | None) -> str:  # noqa: ARG002
        return self.grid.mean(values)

    def _allows_present(self, text: str) -> bool:
        return self.grid.contains(text)

    def _is_inside(self, text: str) -> bool:
        return self.grid.within_bounds(text)

    def _number(self, text: str) -> float:
        return float(text)


class PublishedTimes(PublishedValues):
    """Means of times, on the step of the policy."""

    has_moments = True

    def __init__(self, attribute: Attribute, form: Form, *, table: bool) -> None:
        super().__init__(attribute, form, table=table)
        step = attribute.time_step
        if step is None:
            raise ValueError(attribute.name)
        self._grid = TimeGrid(step, attribute.unit)
        self._has_quotes = attribute.unit is None or self._is_csv
        self._limits = (
            None if attribute.bounds is None else tuple(self._grid.rounded(limit) for limit in attribute.limits)
        )

    def _of_present(self, values: Sequence[float], categories: Categories | None) -> str:  # noqa: ARG002
        text = self._grid.mean(values)
        return f'"{text}"' if self._has_quotes else text

    def _parse(self, text: str) -> int | None:
        if self._has_quotes:
            return self._grid.parse(text[1:-1]) if text[:1] == text[-1:] == '"' else None
        return self._grid.parse(text)

    def _allows_present(self, text: str) -> bool:
        return self._parse(text) is not None

    def _is_inside(self, text: str) -> bool:
        found = self._parse(text)
        return found is None or self._limits is None or self._limits[0] <= found <= self._limits[1]

    def _number(self, text: str) -> float:
        found = self._parse(text)
        return math.nan if found is None else float(found)


class PublishedRanks(PublishedValues):
    """Lower medians of an ordinal attribute, as items of its order."""

    def __init__(self, attribute: Attribute, form: Form, *, table: bool) -> None:
        super().__init__(attribute, form, table=table)
        self._texts = [self._shown(json_text(item)) for item in attribute.order]

    def _of_present(self, values: Sequence[float], categories: Categories | None) -> str:  # noqa: ARG002
        return self._texts[int(sorted(values)[(len(values) - 1) // 2])]

    def _allows_present(self, text: str) -> bool:
        return text in self._texts

    def _total_distance(self, values: Sequence[float], text: str, categories: Categories) -> float:  # noqa: ARG002
        rank = self._texts.index(text)
        return sum(abs(value - rank) for value in values) / max(len(self._texts) - 1, 1)


class PublishedCategories(PublishedValues):
    """Modes of a nominal attribute; with a taxonomy also common ancestors and tree medians."""

    def __init__(self, attribute: Attribute, form: Form, *, table: bool, missing_values: tuple[str, ...] = ()) -> None:
        super().__init__(attribute, form, table=table)
        self._publish = attribute.publish
        # A whole number or truth value is missing, too, if its text is that of a missing value.
        self._missing_texts = frozenset(map(json_text, missing_values)).union(
            text for text in missing_values if not text.startswith('"')
        )
        self._tree = None if attribute.taxonomy is None else TaxonomyTree(attribute.taxonomy)
        self._nodes: frozenset[str] | None = None
        if self._tree is not None and attribute.unknown == "quarantine":
            names = self._tree.leaves | (frozenset() if attribute.publish == "mode" else self._tree.inner)
            self._nodes = frozenset(self._shown(json_text(name)) for name in names)

    @property
    def inner_nodes(self) -> frozenset[str]:
        """The texts of the nodes above leaves, which may be published although no record has them."""
        if self._tree is None or self._publish == "mode":
            return frozenset()
        return frozenset(self._shown(json_text(name)) for name in self._tree.inner)

    def shown_category(self, category: str) -> str:
        """Return the published text of a category."""
        return self._shown(category if self._tree is None else json_text(category))

    def _of_present(self, values: Sequence[float], categories: Categories | None) -> str:
        known = categories or Categories()
        if self._tree is None or self._publish == "mode":
            return self.shown_category(self._mode(values, known))
        return self._shown(json_text(self._node(self._tree, [known.texts[int(value)] for value in values]).name))

    def _node(self, tree: TaxonomyTree, leaves: Sequence[str]) -> Node:
        return tree.ancestor(leaves) if self._publish == "ancestor" else tree.median(leaves)

    def _mode(self, values: Sequence[float], categories: Categories) -> str:
        counts = Counter(map(int, values))
        most = max(counts.values())
        tied = [code for code, count in counts.items() if count == most]
        if self._is_table and len(tied) > 1:
            largest = max(categories.counts[code] for code in tied)
            tied = [code for code in tied if categories.counts[code] == largest]
        # The order of code points is that of UTF-8 bytes.
        as_json = (lambda text: text) if self._tree is None else json_text
        return min((categories.texts[code] for code in tied), key=as_json)

    def _allows_present(self, text: str) -> bool:
        if self._nodes is not None:
            return text in self._nodes
        if text in self._missing_texts:
            return text in self.inner_nodes
        if self._is_csv:
            return True
        if self._tree is not None:
            return text.startswith('"')
        return text.startswith('"') or text in {"true", "false"} or text.removeprefix("-").isdigit()

    def _total_distance(self, values: Sequence[float], text: str, categories: Categories) -> float:
        counts = Counter(categories.texts[int(value)] for value in values)
        if self._tree is None:
            return float(sum(count for name, count in counts.items() if self.shown_category(name) != text))
        # The text names a node, but not its level: leaf, inner node and root can have one name.
        mode = self._publish == "mode"
        node = Node(0, json.loads(text)) if mode else self._node(self._tree, list(counts.elements()))
        return float(sum(count * self._tree.distance(name, node) for name, count in counts.items()))


def published_values(
    policy: Policy, form: Form, *, table: bool, has_table_grids: bool, is_binary: bool = False
) -> list[PublishedValues]:
    """Return the published values of each quasi-identifier.

    Parameters
    ----------
    policy : Policy
    form : {"csv", "jsonl"}
        Form of the release.
    table : bool
        Whether the release is one of a table.
    has_table_grids : bool
        Whether the default resolutions of tables apply.
    is_binary : bool
        Whether it is a Parquet file.
    """
    sign = DecimalSign(policy.csv_output.decimal if form == "csv" else ".")

    def of(attribute: Attribute) -> PublishedValues:
        match attribute.scale:
            case Scale.NOMINAL:
                return PublishedCategories(attribute, form, table=table, missing_values=policy.missing_values)
            case Scale.ORDINAL:
                return PublishedRanks(attribute, form, table=table)
            case Scale.TIME:
                return PublishedTimes(attribute, form, table=table)
            case _:
                return PublishedNumbers(attribute, form, table=has_table_grids, is_binary=is_binary, sign=sign)

    return [of(attribute) for attribute in policy.quasi_identifiers]
