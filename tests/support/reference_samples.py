"""Samples of one confidential attribute, and the references that are made of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from shoal.formats import Block
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.tables import ReferenceSample, SmoothedReference

Pair = tuple[int, Any]
"""A subject and the value of one of its records."""


def policy_of(k: int, **options: Any) -> Policy:
    return Policy.from_document(
        Document.model_validate(
            {
                "attributes": {
                    "id": {"role": "identifier", "subject": True},
                    "age": {"role": "quasi_identifier", "bounds": [0, 110]},
                    "value": {"role": "confidential"} | options,
                },
                "privacy": {"k": k},
            }
        )
    )


def smooth(policy: Policy, pairs: Iterable[Pair], block_size: int = 1000) -> SmoothedReference:
    """Return the reference of a sample, which is added in blocks."""
    records = list(pairs)
    sample = ReferenceSample(policy, policy.confidential[0])
    for start in range(0, len(records), block_size):
        part = records[start : start + block_size]
        sample.add(
            Block(
                values=np.zeros((len(part), 1)),
                subjects=np.array([subject for subject, _ in part], np.int64),
                unchanged_fields=[b""] * len(part),
                index=np.arange(len(part), dtype=np.int64),
                rejected=[],
                clipped=0,
                unchanged_columns=[[value for _, value in part]],
            )
        )
    return sample.smooth()
