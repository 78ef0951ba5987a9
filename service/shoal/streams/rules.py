"""The choice of a rule by its name, k and the size of the buffer."""

from __future__ import annotations

import math
from typing import Protocol

from shoal.errors import ParameterError
from shoal.policy import RULES, resolve_rule
from shoal.streams.block import BlockRule
from shoal.streams.diverse import DiverseBlockRule, DiverseGrowthRule, DiverseNearestRule
from shoal.streams.expiry import StreamConstraints
from shoal.streams.growth import GrowthRule
from shoal.streams.held_records import Buffer, CoordinateBlock, DecisionBuffer
from shoal.streams.indexed import IndexedGrowthRule, IndexedNearestRule
from shoal.streams.nearest import NearestRule
from shoal.streams.protection import Protection

__all__ = ["INDEXED_FROM", "MAX_INDEXED_DIMENSIONS", "Rule", "make_rule", "rule_faults"]

INDEXED_FROM = {"nearest": 4096, "awo": 1000}
"""Held records from which a cell index may be faster than a scan of all held records."""
MAX_INDEXED_DIMENSIONS = 8
"""Coordinates up to which a cell index may be faster than a scan."""


class Rule(Protocol):
    """Decides which held records form a cluster."""

    def precompile(self) -> None:
        """Compile all kernels, so that no record waits for the compiler later."""

    def push(self, block: CoordinateBlock) -> DecisionBuffer:
        """Append the records of a validated block one by one, and decide on each record that is due for decision."""

    def flush(self, newest: int) -> DecisionBuffer:
        """Decide on all held records; ``newest`` is the position of the last record that arrived."""


def rule_faults(name: object) -> list[str]:
    """Return what is wrong with the name of a rule, as messages; an empty list if it is valid."""
    if not isinstance(name, str):
        return ["rule: must be a name"]
    if name not in {"auto", *RULES}:
        return [f"rule: unknown, use one of auto, {', '.join(RULES)}"]
    return []


def make_rule(name: str, buffer: Buffer, constraints: StreamConstraints, protection: Protection | None = None) -> Rule:
    """Return the rule of a name, with all of its kernels compiled.

    Raises
    ------
    ParameterError
        No rule has this name.
    """
    rule = (
        _create(name, buffer, constraints)
        if protection is None
        else _create_diverse(name, buffer, constraints, protection)
    )
    rule.precompile()
    return rule


def _create(name: str, buffer: Buffer, constraints: StreamConstraints) -> Rule:
    chosen = resolve_rule(name, constraints.k)
    min_held = INDEXED_FROM.get(chosen, 0)
    is_numeric = not len(buffer.held.code_distances)  # cells bound numeric coordinates only
    is_indexable = is_numeric and 0 < min_held <= constraints.delta
    is_indexable = is_indexable and len(buffer.held.coordinates) <= MAX_INDEXED_DIMENSIONS
    if chosen == "nearest":
        return IndexedNearestRule(buffer, constraints, min_held) if is_indexable else NearestRule(buffer, constraints)
    weight = 0.0 if chosen == "greedy" else _opportunity_weight(constraints.k)  # greedy is awo without such costs
    if chosen == "block":
        return BlockRule(buffer, constraints, weight)
    if chosen in {"greedy", "awo"}:
        if is_indexable:
            return IndexedGrowthRule(buffer, constraints, weight, min_held)
        return GrowthRule(buffer, constraints, weight)
    raise ParameterError("rule: no class implements it")


def _create_diverse(name: str, buffer: Buffer, constraints: StreamConstraints, protection: Protection) -> Rule:
    """Return a rule whose clusters satisfy a protection. A cell index is of no use to it."""
    chosen = resolve_rule(name, constraints.k, protects_values=True)
    if chosen == "nearest":
        return DiverseNearestRule(buffer, constraints, protection)
    weight = 0.0 if chosen == "greedy" else _opportunity_weight(constraints.k)
    made = DiverseBlockRule if chosen == "block" else DiverseGrowthRule
    return made(buffer, constraints, weight, protection)


def _opportunity_weight(k: int) -> float:
    """Return the weight of opportunity costs; it grows with k, because larger clusters cost the other records more."""
    return min(max(0.6 * math.log2(k), 1.0), 2.5)
