"""Attributes of each scale, policies with them, and blocks of their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from shoal.formats import Block
from shoal.policy import Attribute, Policy, Role, Scale, Taxonomy, TimeStep
from shoal.policy.schema import Document

AREAS = Taxonomy.of_rows(
    [["AK", "West", "US"], ["CA", "West", "US"], ["NY", "East", "US"], ["MA", "East", "US"], ["ME", "East", "US"]]
)


def attribute(name: str, scale: Scale, **more: Any) -> Attribute:
    """Return a quasi-identifier of a scale; ordinal ones have the bounds of their ranks, and times a step of a day."""
    if scale is Scale.ORDINAL:
        more.setdefault("bounds", (0.0, len(more["order"]) - 1.0))
    if scale is Scale.TIME:
        more.setdefault("time_step", TimeStep(1, "day"))
    places = {"path": (name,), "to": (name,)}
    return Attribute(**{"name": name, "role": Role.QUASI_IDENTIFIER, "scale": scale, **places, **more})


def policy_with(*attributes: Attribute, k: int = 2, delta: int | None = 5, **more: Any) -> Policy:
    """Return a policy with these attributes, in which every record is a subject."""
    document: dict[str, Any] = {
        "attributes": {"x": {"role": "quasi_identifier", "bounds": [0, 1]}},
        "subject": "every_record",
        "privacy": {"k": k},
    }
    if delta is not None:
        document["stream"] = {"delta": delta}
    policy = Policy.from_document(Document.model_validate(document | more))
    return replace(policy, attributes=attributes)


def block_of(policy: Policy, rows: Sequence[Sequence[Any]], first_subject: int = 0) -> Block:
    """Return a block of rows: numbers, or the JSON texts of categories; None where a value is missing."""
    columns, categories = [], []
    for attribute, column in zip(policy.clustered, zip(*rows, strict=True), strict=True):
        if attribute.is_nominal:
            known = sorted({text for text in column if text is not None}, reverse=True)
            categories.append(known)
            columns.append([np.nan if text is None else float(known.index(text)) for text in column])
        else:
            columns.append([np.nan if number is None else float(number) for number in column])
    return Block(
        values=np.array(columns).T.copy(),
        subjects=np.arange(first_subject, first_subject + len(rows)),
        unchanged_fields=[b""] * len(rows),
        index=np.arange(len(rows)),
        rejected=[],
        clipped=0,
        categories=categories,
    )
