"""Adult as a stream: its attributes by scale, its messages, and its policies.

The 14 attributes of the table are 13 quasi-identifiers and the occupation, which is confidential. Nothing here is
computed by Shoal: scales and taxonomies are read again from the files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from reference_data import data_folder, read_rows
from ruamel.yaml import YAML

__all__ = [
    "ATTRIBUTES",
    "CONFIDENTIAL",
    "MISSING",
    "NOMINAL",
    "NUMERIC",
    "NUMERIC_FOUR",
    "ORDINAL",
    "POLICY",
    "Kind",
    "Tree",
    "diverse_document",
    "messages",
    "numbers",
    "policy_document",
    "texts",
    "tree_of",
]

POLICY = Path(__file__).with_name("adult.yaml")
CONFIDENTIAL = "occupation"
MISSING = "?"
NUMERIC = "numeric"
ORDINAL = "ordinal"
NOMINAL = "nominal"
NUMERIC_FOUR = ("age", "education-num", "capital-gain", "hours-per-week")
"""The four numeric attributes that the speed of all attributes is compared with."""


class Kind(NamedTuple):
    """Name and scale of a quasi-identifier, the range of a numeric one, the order of an ordinal one."""

    name: str
    scale: str
    low: float
    high: float
    order: tuple[str, ...]
    taxonomy: str | None


class Tree(NamedTuple):
    """The categories of a nominal attribute as a tree.

    ``paths`` has for each category its nodes from the leaf to the child of the root, `levels` of them, and ``below``
    the leaves below each published text: a leaf, an inner node or the root. A missing value is a leaf of its own that
    differs from all others on every level.
    """

    levels: int
    paths: dict[str, tuple[str, ...]]
    below: dict[str, frozenset[str]]

    def distance(self, one: str, other: str) -> float:
        """Return the height of the lowest common ancestor over the number of levels: 0 for equal ones, at most 1."""
        pairs = zip(self.paths[one], self.paths[other], strict=True)
        return sum(a != b for a, b in pairs) / self.levels


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = YAML(typ="safe").load(POLICY.read_text(encoding="utf-8"))
    return document


def _kinds() -> tuple[Kind, ...]:
    found = []
    for name, section in _document()["attributes"].items():
        if section["role"] != "quasi_identifier":
            continue
        order = tuple(section.get("order", ()))
        low, high = section.get("bounds") or (0, max(len(order) - 1, 1))
        found.append(Kind(name, section["scale"], low, high, order, section.get("taxonomy")))
    return tuple(found)


ATTRIBUTES = _kinds()
"""The 13 quasi-identifiers, in the order of the table."""


@cache
def _rows() -> list[dict[str, str]]:
    return read_rows(data_folder(), "adult")


@cache
def texts(name: str) -> tuple[str, ...]:
    """Return the column of an attribute as it is in the file."""
    return tuple(row[name] for row in _rows())


@cache
def numbers(kind: Kind) -> NDArray[np.float64]:
    """Return a numeric column, or the ranks of an ordinal one."""
    if kind.scale == ORDINAL:
        rank = {item: float(place) for place, item in enumerate(kind.order)}
        return np.array([rank[text] for text in texts(kind.name)])
    return np.array([float(text) for text in texts(kind.name)])


@cache
def tree_of(kind: Kind) -> Tree:
    """Return the tree of a nominal attribute; without a taxonomy all categories are children of the root."""
    categories = sorted(set(texts(kind.name)) - {MISSING})
    if kind.taxonomy is None:
        rows: list[tuple[str, ...]] = [(category, "*") for category in categories]
    else:
        lines = (POLICY.parent / kind.taxonomy).read_text(encoding="utf-8").splitlines()[1:]
        rows = [tuple(line.split(",")) for line in lines if not line.startswith(MISSING)]
    below: dict[str, set[str]] = {}
    for row in rows:
        for node in row:
            below.setdefault(node, set()).add(row[0])
    levels = len(rows[0]) - 1
    # A node is its name at its level.
    paths = {row[0]: tuple(f"{level}/{node}" for level, node in enumerate(row[:-1])) for row in rows}
    paths[MISSING] = (f"missing/{MISSING}",) * levels
    return Tree(levels, paths, {node: frozenset(leaves) for node, leaves in below.items()} | {MISSING: frozenset("?")})


def messages(count: int | None = None) -> list[bytes]:
    """Return the first records, or all, as JSON in the order of the file: numbers and strings."""
    numeric = {kind.name for kind in ATTRIBUTES if kind.scale == NUMERIC}
    return [
        json.dumps({name: int(text) if name in numeric else text for name, text in row.items()}).encode()
        for row in _rows()[:count]
    ]


def policy_document(kept: str = "all", scaling: str = "spreads") -> dict[str, Any]:
    """Return the policy as a document that may be in any folder.

    Parameters
    ----------
    kept
        ``all``: as in the file. ``unchanged``: four numeric quasi-identifiers, all other attributes confidential, so
        that they leave as they came. ``dropped``: four numeric ones, all others identifiers, which are not published.
    scaling
        How distances are scaled: ``spreads`` or ``bounds``.
    """
    document: dict[str, Any] = json.loads(json.dumps(_document())) | {"steering": {"scaling": scaling}}
    for section in document["attributes"].values():
        if "taxonomy" in section:
            section["taxonomy"] = str((POLICY.parent / section["taxonomy"]).resolve())
    if kept == "all":
        return document
    other = {"role": "confidential"} if kept == "unchanged" else {"role": "identifier"}
    attributes = document["attributes"]
    for name in attributes:
        if name in NUMERIC_FOUR:
            del attributes[name]["missing"]
        else:
            attributes[name] = other
    del document["missing_values"]
    return document


def diverse_document(privacy: Mapping[str, Any], reference: Path | None = None) -> dict[str, Any]:
    """Return the policy with demands on the occupation: ``l``, ``t`` or ``max_value_share``, and a reference file."""
    document = policy_document()
    document["privacy"] |= privacy
    occupation = document["attributes"][CONFIDENTIAL]
    if privacy:
        occupation["protect"] = True
    if reference is not None:
        occupation["reference"] = str(reference.resolve())
    return document
