"""Policies and messages for the tests of decoders and encoders."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from shoal.policy import Policy
from shoal.policy.schema import Document

SUBJECT = {"role": "identifier", "subject": True}


def quasi(low: float | None = 0, high: float | None = 100, **more: Any) -> dict[str, Any]:
    bounds = {} if low is None else {"bounds": [low, high]}
    return {"role": "quasi_identifier", **bounds, **more}


def unchanged_field(kind: str = "any") -> dict[str, Any]:
    return {"role": "confidential", "type": kind}


def policy_of(attributes: dict[str, dict[str, Any]], **more: Any) -> Policy:
    """Return a policy. If no attribute is the subject, every record belongs to a different person."""
    content: dict[str, Any] = {"attributes": attributes, "privacy": {"k": 2}, **more}
    if not any(attribute.get("subject") for attribute in attributes.values()):
        content["subject"] = "every_record"
    return Policy.from_document(Document.model_validate(content))


def usual_policy(**more: Any) -> Policy:
    """Return a policy with one attribute of each role; the unchanged fields are one run at the end."""
    return policy_of(
        {
            "patient": SUBJECT,
            "ticket": {"role": "identifier"},
            "age": quasi(0, 110, integer=True),
            "income": quasi(0, 1e6),
            "diagnosis": unchanged_field("string"),
            "ward": {"role": "other", "type": "any", "publish_unchanged": True},
        },
        **more,
    )


def message(**changes: Any) -> dict[str, Any]:
    """Return a record that the usual policy accepts, with changes."""
    return {"patient": "p1", "ticket": "t1", "age": 42, "income": 1234.5, "diagnosis": "flu", "ward": 7, **changes}


def encoded(*records: dict[str, Any]) -> list[bytes | None]:
    return [json.dumps(record).encode() for record in records]


def with_paths(policy: Policy, missing: Collection[str] = (), **paths: str | tuple[str, ...]) -> Policy:
    """Return a policy with other paths; the attributes in ``missing`` may be absent."""
    split = {name: tuple(path.split(".")) if isinstance(path, str) else path for name, path in paths.items()}
    attributes = tuple(
        replace(one, path=split.get(one.name, one.path), missing="group" if one.name in missing else one.missing)
        for one in policy.attributes
    )
    return replace(policy, attributes=attributes)
