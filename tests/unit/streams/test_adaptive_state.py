"""The committed adaptive state: written, read back, refused."""

from __future__ import annotations

import struct

import pytest
from shoal.errors import InputError
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.streams import AdaptiveState

pytestmark = pytest.mark.unit


def policy_of(position: object) -> Policy:
    return Policy.from_document(
        Document.model_validate(
            {
                "attributes": {"x": {"role": "quasi_identifier", "scale": "nominal"}},
                "subject": "every_record",
                "privacy": {"k": 2},
                "stream": {"delta": 4},
                "steering": {"position": position},
            }
        )
    )


STEERED = policy_of({"target_span": 3})


@pytest.mark.parametrize("weight", [5e-324, 0.1, 1 / 3, 1e300])
def test_a_weight_is_read_back_to_the_bit(weight: float) -> None:
    data = AdaptiveState(weight).to_bytes(STEERED)
    assert len(data) == AdaptiveState.size(STEERED)
    assert AdaptiveState.from_bytes(data, STEERED).position_weight == weight


def test_a_fixed_weight_needs_no_bytes() -> None:
    assert AdaptiveState.size(policy_of(0.1)) == 0
    assert AdaptiveState().to_bytes(STEERED) == b""


def test_no_bytes_are_the_initial_state() -> None:
    assert AdaptiveState.from_bytes(b"", STEERED) == AdaptiveState()


@pytest.mark.parametrize(
    "data",
    [
        b"\2",
        b"\1" + struct.pack(">d", 1.0),
        b"\2" + struct.pack(">d", float("nan")),
        b"\2" + struct.pack(">d", 0.0),
        b"\2" + struct.pack(">d", float("inf")),
        b"\2" + struct.pack(">d", 1.0) + b"\0",
    ],
)
def test_invalid_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="committed adaptive state"):
        AdaptiveState.from_bytes(data, STEERED)


def test_a_state_is_refused_by_a_policy_without_one() -> None:
    with pytest.raises(InputError):
        AdaptiveState.from_bytes(AdaptiveState(0.1).to_bytes(STEERED), policy_of(0.1))
