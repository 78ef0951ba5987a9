"""Compilation ahead: artificial records of a policy, and the kernels that its tables need."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.arrays import Int64Vector
from shoal.formats import Block, JsonEncoder, ProtectedValues
from shoal.policy import Attribute, Policy
from shoal.scales import scale_of
from shoal.tables.repair import precompile_repair
from shoal.tables.table import AlgorithmSpec, TablePipeline

SMALL, LARGE = 200, 600  # records of the artificial tables; up to 256 records are refined by kernels of their own


def precompile_table(policy: Policy) -> None:
    """Compile the kernels that algorithm ``auto`` needs for tables of any size, by releasing two artificial tables."""
    if policy.diversity is not None or policy.max_value_share is not None:
        precompile_repair()
    # A policy that needs the same kernels and that artificial values can satisfy:
    policy = replace(
        policy,
        t=None if policy.t is None else 1.0,
        diversity=None if policy.diversity is None else replace(policy.diversity, kind="distinct", l=2.0, c=None),
        max_value_share=None if policy.max_value_share is None else 1.0,
    )
    fewest = max(3 * policy.k, policy.min_population or 0)
    for count in (max(SMALL, fewest), max(LARGE, fewest)):
        table = TablePipeline(policy, JsonEncoder(policy))
        table.add(artificial_block(policy, np.arange(count)))
        table.release(AlgorithmSpec())


def artificial_block(policy: Policy, subjects: Int64Vector) -> Block:
    """Return records of these subjects (n,), with values that are spread over the bounds."""
    count, scales = len(subjects), [scale_of(attribute) for attribute in policy.clustered]
    shares = np.outer(np.arange(count), np.sqrt(np.arange(len(scales)) + 2.5)) % 1.0
    columns = [[_artificial_value(attribute, i) for i in range(count)] for attribute in policy.unchanged_fields]
    return Block(
        values=np.column_stack([scale.values_at(shares[:, i]) for i, scale in enumerate(scales)]),
        subjects=subjects,
        unchanged_fields=JsonEncoder(policy).encode_unchanged(columns, count),
        index=np.arange(count),
        rejected=[],
        clipped=0,
        unchanged_columns=columns,
        categories=[scale.artificial_categories for scale in scales if scale.is_coded],
        protected=_protected_values(policy, count),
    )


def _artificial_value(attribute: Attribute, number: int) -> object:
    match attribute.type:
        case "boolean":
            return number % 2 == 0
        case "string" | "json":  # the value of a JSON field is its text
            return str(number % 5)
        case _:
            return number % 5


def _protected_values(policy: Policy, count: int) -> ProtectedValues | None:
    """Return the values of records: as many different ones as there are records, or as an ordinal attribute has."""
    if not policy.protected:
        return None
    keys = [[str(item) for item in a.order] or [str(number) for number in range(count)] for a in policy.protected]
    numbers = np.stack([np.arange(count) % len(own) for own in keys], axis=1)
    return ProtectedValues(numbers, keys)
