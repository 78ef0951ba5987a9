"""What is committed of earlier decisions: written, read back, refused."""

from __future__ import annotations

import struct

import pytest
from shoal.errors import InputError
from shoal.pipeline import AdaptiveState
from shoal.policy import Policy
from shoal.policy.schema import Document

pytestmark = pytest.mark.unit


def policy_of(position: object) -> Policy:
    return Policy.from_document(
        Document.model_validate(
            {
                "attributes": {"x": {"role": "quasi_identifier", "bounds": [0, 1]}},
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
    text = AdaptiveState(weight).pack()
    assert len(text) == AdaptiveState.size(STEERED)
    assert AdaptiveState.unpack(text, STEERED).weight == weight


def test_a_fixed_weight_needs_no_room() -> None:
    assert AdaptiveState.size(policy_of(0.1)) == 0
    assert AdaptiveState().pack() == b""


def test_nothing_is_the_beginning() -> None:
    assert AdaptiveState.unpack(b"", STEERED) == AdaptiveState()


@pytest.mark.parametrize(
    "text",
    [
        b"\1",
        b"\2" + struct.pack(">d", 1.0),
        b"\1" + struct.pack(">d", float("nan")),
        b"\1" + struct.pack(">d", 0.0),
        b"\1" + struct.pack(">d", float("inf")),
        b"\1" + struct.pack(">d", 1.0) + b"\0",
    ],
)
def test_what_is_no_course_is_refused(text: bytes) -> None:
    with pytest.raises(InputError, match="course"):
        AdaptiveState.unpack(text, STEERED)


def test_a_course_of_a_policy_that_keeps_none_is_refused() -> None:
    with pytest.raises(InputError):
        AdaptiveState.unpack(AdaptiveState(0.1).pack(), policy_of(0.1))
