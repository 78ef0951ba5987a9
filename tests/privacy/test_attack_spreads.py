"""Learned ranges: extremes that would spoil them, and what the commits that carry them tell."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
from shoal.arrays import Float64Matrix, Int64Vector
from shoal.pipeline import PartitionPipeline
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.records import Block, JsonEncoder
from support.attack_results import RULES, impossible, measured

pytestmark = pytest.mark.privacy

K, DELTA, COUNT = 10, 100, 8000
ATTACK = slice(2000, 6000)
EXTREME = 2.0**53
"""The largest value that a stream takes where no bounds are said."""


def flow_of(rule: str) -> PartitionPipeline:
    document = {
        "attributes": {
            "age": {"role": "quasi_identifier", "bounds": [0, 1], "resolution": 0},
            "income": {"role": "quasi_identifier", "resolution": 0.5},
        },
        "subject": "every_record",
        "privacy": {"k": K},
        "stream": {"delta": DELTA, "rule": rule},
    }
    policy = Policy.from_document(Document.model_validate(document))
    return PartitionPipeline(policy, JsonEncoder(policy))


def push(flow: PartitionPipeline, values: Float64Matrix, offsets: Int64Vector) -> int:
    """Take records; return how many clusters were decided on."""
    block = Block(values, offsets, [b""] * len(offsets), offsets, [], 0)
    return len(flow.push(block, np.column_stack([np.zeros_like(offsets), offsets])).clusters)


def widths(rule: str, values: Float64Matrix) -> list[float]:
    """Width of the learned range in force after each hundred records."""
    flow, found = flow_of(rule), list[float]()
    for start, end in pairwise(range(0, len(values) + 1, 100)):
        push(flow, values[start:end], np.arange(start, end))
        ranges = flow.adaptive_state.scaler
        assert ranges is not None
        found.append(float(ranges.widths[0]))
    return found


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("share", "bound"), [(0.01, 1.5), (0.1, 2.5)])
def test_extremes_among_the_records_hardly_move_a_learned_range(rule: str, share: float, bound: float) -> None:
    random = np.random.default_rng(1)
    values = random.random((COUNT, 2)) * [1.0, 100.0]
    quiet = widths(rule, values)
    hostile = np.flatnonzero(random.random(COUNT) < share)
    hostile = hostile[(hostile >= ATTACK.start) & (hostile < ATTACK.stop)]
    values[hostile, 1] = EXTREME
    spoilt = widths(rule, values)
    during = slice(ATTACK.start // 100 + 5, ATTACK.stop // 100)
    wider = float(np.mean(spoilt[during]) / np.mean(quiet[during]))
    after = np.mean(spoilt[-10:]) / np.mean(quiet[-10:])
    assert after == pytest.approx(1.0, abs=0.2), "the range does not come back"
    measured(
        "R33",
        f"times as wide as otherwise, a learned range while {share:.0%} of records are extremes",
        knows="the moment; sends records of its own",
        success=wider,
        bound=bound,
        source="no distance counts for more than three (ADR 17)",
        beside=f"from smallest to largest {EXTREME / 100:.0e}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
def test_what_is_committed_of_ranges_depends_on_published_means_alone(rule: str) -> None:
    values = np.random.default_rng(2).random((1000, 2)) * [1.0, 100.0]
    first = flow_of(rule)
    decided = [offset for offset in range(1000) if push(first, values[offset : offset + 1], np.array([offset]))]
    # Two records come between these decisions; who expires has to, whatever the youngest say.
    quiet = next(one for one, other in pairwise(decided) if one > 400 and other > one + 2)
    states = set()
    for held in (values[quiet + 1, 1], 12345.678, -EXTREME):
        flow, changed = flow_of(rule), values.copy()
        changed[quiet + 1 : quiet + 3, 1] = held
        push(flow, changed[: quiet + 1], np.arange(quiet + 1))
        assert not push(flow, changed[quiet + 1 : quiet + 3], np.arange(quiet + 1, quiet + 3))
        states.add(flow.adaptive_state.to_bytes())
        assert struct.pack(">d", held) not in flow.adaptive_state.to_bytes()
    assert len(states) == 1
    impossible("R9", "ranges that are learned are worked out from published means; what is held moves nothing")
