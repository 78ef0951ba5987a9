"""Compilation of all kernels that a policy needs, by processing artificial records."""

from __future__ import annotations

from dataclasses import replace
from threading import Event

import numpy as np

from shoal.arrays import Float64Vector
from shoal.formats import Block, JsonEncoder, ProtectedValues
from shoal.kernels.jit import stopping_compilation
from shoal.policy import Attribute, Policy
from shoal.scales import CategoryIndex, Embedding
from shoal.streams.pipeline import PartitionPipeline
from shoal.streams.spreads import Spreads
from shoal.tables.repair import precompile_repair
from shoal.tables.table import AlgorithmSpec, TablePipeline

__all__ = ["precompile", "precompile_table"]

_SMALL, _LARGE = 200, 600
"""Records of the artificial tables; up to 256 records are refined by kernels of their own."""
_CATEGORIES = ('"a"', '"b"', '"c"')
"""Categories of artificial records."""


def precompile(policy: Policy, stop: Event | None = None) -> None:
    """Compile all kernels that a pipeline of this policy needs, by processing a few artificial records.

    A kernel is compiled at its first use, which takes seconds if it is not in the cache. A worker that compiled after
    it had joined its consumer group would miss heartbeats and lose its partitions.

    Parameters
    ----------
    policy : Policy
        With the section ``stream``.
    stop : threading.Event, optional
        When it is set, the compiler begins no further function, and the exception `CompilationStopped` is raised.
    """
    count = 3 * policy.k
    encoder = JsonEncoder(policy)
    low = [0.0 if a.bounds is None else a.bounds[0] for a in policy.clustered]
    columns = [[None] * count for _ in policy.unchanged_fields]
    block = Block(
        values=np.tile(np.array(low), (count, 1)),
        subjects=np.arange(count) // 2,
        unchanged_fields=encoder.encode_unchanged(columns, count),
        index=np.arange(count),
        rejected=[],
        clipped=0,
        unchanged_columns=columns,
        categories=_categories(policy),
        protected=_protected_values(policy, count),
    )
    with stopping_compilation(stop or Event()):
        pipeline = PartitionPipeline(policy, encoder)
        pipeline.push(block, np.column_stack([np.zeros(count, np.int64), np.arange(count)]))
        pipeline.flush()
        # Artificial records may all be suppressed, under privacy.t for instance.
        _published(policy, block)


def _published(policy: Policy, block: Block) -> None:
    """Compute the published values of one cluster of all records."""
    categories, spreads = CategoryIndex(policy), Spreads.of(policy, None)
    scaling = None if spreads is None else spreads.scaling
    embedding = Embedding.of(policy, scaling, categories.trees, categories.texts)
    published = embedding.published(categories.encode(block).values, np.array([0, len(block)]))
    if spreads is not None:
        spreads.partial_fit(published.values, np.array([len(block)]))


def precompile_table(policy: Policy) -> None:
    """Compile the kernels that algorithm ``auto`` needs for tables of any size, by releasing two artificial tables.

    Raises
    ------
    ConfigError
        As for `TablePipeline`.
    """
    if policy.diversity is not None or policy.max_value_share is not None:
        precompile_repair()
    policy = _without_limits(policy)
    fewest = max(3 * policy.k, policy.min_population or 0)
    for count in (max(_SMALL, fewest), max(_LARGE, fewest)):
        table = TablePipeline(policy, JsonEncoder(policy))
        table.add(_artificial_records(policy, count))
        table.release(AlgorithmSpec())


def _without_limits(policy: Policy) -> Policy:
    """Return a policy that needs the same kernels and that artificial values can satisfy."""
    return replace(
        policy,
        t=None if policy.t is None else 1.0,
        diversity=None if policy.diversity is None else replace(policy.diversity, kind="distinct", l=2.0, c=None),
        max_value_share=None if policy.max_value_share is None else 1.0,
    )


def _artificial_records(policy: Policy, count: int) -> Block:
    """Return records of different subjects, with values that are spread over the bounds."""
    roots = np.sqrt(np.arange(len(policy.clustered)) + 2.5)
    shares = np.outer(np.arange(count), roots) % 1.0
    columns = [[_artificial_value(attribute, i) for i in range(count)] for attribute in policy.unchanged_fields]
    return Block(
        values=np.column_stack([_spread(a, shares[:, i]) for i, a in enumerate(policy.clustered)]),
        subjects=np.arange(count),
        unchanged_fields=JsonEncoder(policy).encode_unchanged(columns, count),
        index=np.arange(count),
        rejected=[],
        clipped=0,
        unchanged_columns=columns,
        categories=_categories(policy),
        protected=_protected_values(policy, count),
    )


def _spread(attribute: Attribute, shares: Float64Vector) -> Float64Vector:
    """Return values of an attribute at shares of its range, from 0 to 1."""
    if attribute.is_nominal:
        return np.floor(shares * len(_CATEGORIES))
    low, high = attribute.bounds or (0.0, 1.0)
    values = low + shares * (high - low)
    return np.rint(values) if attribute.order or attribute.time_step is not None else values


def _categories(policy: Policy) -> list[tuple[str, ...]]:
    return [_CATEGORIES for attribute in policy.clustered if attribute.is_nominal]


def _protected_values(policy: Policy, count: int) -> ProtectedValues | None:
    """Return the values of records: as many different ones as there are records, or as an ordinal attribute has."""
    if not policy.protected:
        return None
    keys = [[str(item) for item in a.order] or [str(number) for number in range(count)] for a in policy.protected]
    numbers = np.stack([np.arange(count) % len(own) for own in keys], axis=1)
    return ProtectedValues(numbers, keys)


def _artificial_value(attribute: Attribute, number: int) -> object:
    if attribute.type == "boolean":
        return number % 2 == 0
    return str(number % 5) if attribute.type == "string" else number % 5
