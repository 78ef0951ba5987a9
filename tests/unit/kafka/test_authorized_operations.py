"""What a broker says, or does not say, of the permissions of the principal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import errors as kafka_errors
from shoal.kafka.checks import find_missing_permissions
from shoal.policy import FieldPath, KafkaSection

pytestmark = pytest.mark.unit

SETTINGS = KafkaSection(input="in", output="out", group="g")
TOPICS: dict[FieldPath, str] = {("kafka", "input"): "in", ("kafka", "output"): "out"}
READ_AND_DESCRIBE, WRITE_AND_DESCRIBE, BOTH_AND_DESCRIBE = 0b1_0000_1000, 0b1_0001_0000, 0b1_0001_1000


class Answering:
    """A client whose broker gives these answers."""

    def __init__(
        self, operations: dict[str, int] | Exception, refusals: dict[tuple[str, int], Exception] | None = None
    ) -> None:
        self.operations, self.refusals = operations, refusals or {}
        self.answered: list[dict[str, Any]] = []
        self._client = SimpleNamespace(get_random_node=lambda: 1, send=self.send)

    async def send(self, _: int, __: object) -> Any:
        if isinstance(self.operations, Exception):
            raise self.operations
        topics = self.answered or [
            {"error_code": 0, "topic": topic, "topic_authorized_operations": number}
            for topic, number in self.operations.items()
        ]
        return SimpleNamespace(to_object=lambda: {"topics": topics})

    async def find_coordinator(self, name: str, kind: int = 0) -> int:
        if (name, kind) in self.refusals:
            raise self.refusals[name, kind]
        return 1


async def found(client: Answering) -> list[tuple[str, str]]:
    return [
        (".".join(fault.path), fault.message)
        for fault in await find_missing_permissions(cast("Any", client), SETTINGS, TOPICS)
    ]


@pytest.mark.parametrize(
    ("operations", "faults"),
    [
        ({"in": READ_AND_DESCRIBE, "out": BOTH_AND_DESCRIBE}, []),
        ({"in": 0b1_0000_0100, "out": 0b1_0000_0100}, []),  # all operations as one bit
        (
            {"in": READ_AND_DESCRIBE, "out": READ_AND_DESCRIBE},
            [("kafka.output", "the principal may not use topic out: grant WRITE on topic out in the ACLs")],
        ),
        (
            {"in": WRITE_AND_DESCRIBE, "out": 0b1_0000_0000},
            [
                ("kafka.input", "the principal may not use topic in: grant READ on topic in in the ACLs"),
                ("kafka.output", "the principal may not use topic out: grant READ and WRITE on topic out in the ACLs"),
            ],
        ),
    ],
)
async def test_each_operation_that_is_missing_on_a_topic_is_named(
    operations: dict[str, int], faults: list[tuple[str, str]]
) -> None:
    assert await found(Answering(operations)) == faults


@pytest.mark.parametrize(
    "operations",
    [
        {"in": -(2**31), "out": -(2**31)},
        {"in": 0, "out": 0},
        {},
        NotImplementedError("version"),
        kafka_errors.IncompatibleBrokerVersion("version"),
    ],
    ids=str,
)
async def test_a_broker_that_does_not_say_what_is_allowed_is_no_fault(operations: dict[str, int] | Exception) -> None:
    assert await found(Answering(operations)) == []


async def test_a_broker_without_topic_ids_does_not_say_what_is_allowed() -> None:
    client = Answering({})
    client.answered = [{"error_code": 0, "topic": topic, "partitions": []} for topic in ("in", "out")]
    assert await found(client) == []


async def test_group_and_transactional_ids_that_may_not_be_used_are_named_together() -> None:
    refusals: dict[tuple[str, int], Exception] = {
        ("g", 0): kafka_errors.GroupAuthorizationFailedError("other"),
        ("g-in-0", 1): kafka_errors.TransactionalIdAuthorizationFailed("other"),
    }
    words = (
        "the principal may not use group g: grant READ on it in the ACLs",
        "the principal may not use its transactional ids: grant WRITE on those with the prefix g-in- in the ACLs",
    )
    assert await found(Answering({}, refusals)) == [("kafka.group", words[0]), ("kafka.group", words[1])]


async def test_a_coordinator_that_is_not_available_is_no_fault() -> None:
    refusals: dict[tuple[str, int], Exception] = {("g", 0): kafka_errors.GroupCoordinatorNotAvailableError()}
    assert await found(Answering({}, refusals)) == []
