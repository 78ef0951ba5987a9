"""Random limits of confidential values, with a reference where a policy needs one."""

from __future__ import annotations

import csv
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

from support.random_policies import Document, Kind

_LISTED: dict[str, tuple[Any, ...]] = {
    "any": ("A00", "B20", "é", " x", "1", "true", "it's", "-0", ""),
    "string": ("A00", "B20", "e\u0301", "x ", "1", "true", "a;b|c\td", ""),
    "boolean": ("true", "False", ""),
    "integer": ("0", "7", "-3", "50.0", "1e12", ""),
    "number": ("0.5", "-1.25", "40", "100", "1e22", ""),
}
"""Texts of a reference by type. Records have these values, and others."""
_TREE = {"all": {"letters": ["A00", "B20", "é"], "others": ["1", "true", "x"]}}


def with_protection(random: Random, document: Document, kind: Kind, folder: Path) -> Document:
    """Return a policy with one or more of ``l``, ``max_value_share`` and ``t``; write its reference to the folder."""
    document = deepcopy(document)
    kinds = [random.choice(tuple(_LISTED)) for _ in range(random.choice((1, 1, 2)))]
    names = [f"ill {number}" for number in range(len(kinds))]
    for name, type_ in zip(names, kinds, strict=True):
        document["attributes"][name] = {"role": "confidential", "type": type_, "protect": True}
    privacy = document["privacy"]
    privacy.pop("t", None)
    if random.random() < 0.6:
        privacy["l"] = random.choice((2, 2, 3, 2, {"entropy": 1.5}, {"entropy": 2.5}, {"recursive": [2, 2]}))
    if random.random() < 0.4 or "l" not in privacy:
        privacy["max_value_share"] = random.choice((0.4, 0.5, 0.7, 1))
    if random.random() < 0.5:
        privacy["t"] = random.choice((0.3, 0.5, 0.7))
        document.pop("steering", None)
        for name, type_ in zip(names, kinds, strict=True):
            if kind != "table" or random.random() < 0.5:
                document["attributes"][name] |= _compared(random, type_, folder / f"{name}.csv")
    return document


def _compared(random: Random, type_: str, path: Path) -> Document:
    """Write a reference; return it, and the scale by which values are compared with it."""
    listed = list(_LISTED[type_])
    if random.random() < 0.5:
        listed.remove("")
    weights = [random.randint(1, 9) for _ in listed]
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("value", "share"))
        rows.writerows((text, weight / sum(weights)) for text, weight in zip(listed, weights, strict=True))
    scales: tuple[Document, ...] = ({}, {})
    if type_ in {"any", "string"}:
        order = [text.strip() for text in listed if text]
        scales = (
            {},
            {"scale": "nominal"},
            {"scale": "nominal", "taxonomy": _TREE},
            {"scale": "ordinal", "order": order},
        )
    return {"reference": str(path), **random.choice(scales)}
