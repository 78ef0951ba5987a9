"""Checks before the start: topics, their settings, and what the principal may do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from aiokafka import errors as kafka_errors
from shoal.errors import BrokerUnavailableError
from shoal.kafka import checks
from shoal.kafka import topics as topic_ids
from shoal.kafka.checks import UncheckedSettings, broker_configs, find_missing_permissions, topic_configs
from shoal.kafka.client import named_topics
from shoal.policy import FieldPath, KafkaSection
from shoal.policy.schema import TopicPairSection
from structlog.testing import capture_logs
from support.making import policy_of, quasi

pytestmark = pytest.mark.unit


async def test_a_kafka_cluster_without_live_brokers_is_a_retriable_error() -> None:
    """So answers a broker that has just come back, as long as its controller takes it for dead."""

    waking = Cluster(set(), {})
    waking.brokers = []
    with pytest.raises(BrokerUnavailableError, match="no broker"):
        await broker_configs(cast("Any", waking))


class Cluster:
    """A cluster of one broker, with topics that exist, and settings of which some are refused to the principal."""

    def __init__(self, refused: set[str], settings: dict[str, str], topics: tuple[str, ...] = ("a", "b", "p")) -> None:
        self.refused, self.settings, self.topics = refused, settings, topics
        self.asked: list[str] = []
        self.brokers = [{"node_id": 7}]
        self._client = self

    def get_random_node(self) -> int:
        return 7

    async def send(self, _: int, request: Any) -> Any:
        named = [topic for topic in self.topics if topic in request._topics]
        topics = [{"topic": topic, "error_code": 0, "partitions": [{"partition": 0}]} for topic in named]
        return SimpleNamespace(to_object=lambda: {"brokers": self.brokers, "topics": topics})

    async def describe_configs(self, resources: list[Any]) -> list[Any]:
        names = [resource.name for resource in resources]
        self.asked += names
        entries = [(name, value, False, False, False) for name, value in self.settings.items()]
        rows = [(29, "refused", 2, name, []) if name in self.refused else (0, None, 2, name, entries) for name in names]
        return [SimpleNamespace(resources=rows)]


async def test_settings_that_the_principal_may_not_see_are_not_taken_for_defaults() -> None:
    cluster = cast("Any", Cluster({"b", "7"}, {"cleanup.policy": "compact"}))
    assert await topic_configs(cluster, ["b", "p"]) == {"p": {"cleanup.policy": "compact"}}
    assert await broker_configs(cluster) is None
    assert await broker_configs(cast("Any", Cluster(set(), {"offset.metadata.max.bytes": "9"}))) == {
        "offset.metadata.max.bytes": "9"
    }


async def test_a_missing_topic_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that starts may not know all topics yet. The request goes to a random one."""
    monkeypatch.setattr(topic_ids, "ASK_AGAIN_S", 0.01)
    answers = [("a",), ("a", "b")]

    class Starting(Cluster):
        async def send(self, node: int, request: Any) -> Any:
            self.topics = answers.pop(0)
            return await super().send(node, request)

    client = cast("Any", Starting(set(), {}))
    assert await checks.partitions_of(client, ["a"]) == {"a": [0]}
    answers.insert(0, ("a",))
    assert await checks.partitions_of(client, ["a", "b"]) == {"a": [0], "b": [0]}


COPIED = KafkaSection(input="a", output="b", progress_copy="p")


async def test_settings_that_were_not_checked_are_named_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_missing_permissions", AsyncMock(return_value=[]))
    unchecked, policy = UncheckedSettings(), policy_of({"x": quasi()}, stream={"delta": 9})
    with capture_logs() as lines:
        for _ in range(2):
            await checks.preflight(cast("Any", Cluster({"b", "p", "7"}, {})), policy, COPIED, unchecked)
    of_topics, of_copy, of_broker = lines
    assert "grant DESCRIBE_CONFIGS on these topics" in of_topics["event"]
    assert (of_topics["topics"], of_topics["not_checked"]) == ("b, p", "cleanup.policy, max.message.bytes")
    assert "its topic must have cleanup.policy compact, without delete" in of_copy["event"]
    assert of_copy["topic"] == "p"
    assert "grant DESCRIBE_CONFIGS on the cluster" in of_broker["event"]
    assert of_broker["not_checked"] == "offset.metadata.max.bytes, transaction.max.timeout.ms"
    assert [line["log_level"] for line in lines] == ["info", "warning", "info"]


def test_each_pair_of_topics_is_checked() -> None:
    settings = KafkaSection(
        topics=[TopicPairSection(input="a", output="b"), TopicPairSection(input="c", output="d")],
        evidence="e",
        max_record_bytes=1000,
    )
    topics = named_topics(settings)
    assert topics == {
        ("kafka", "topics", "0", "input"): "a",
        ("kafka", "topics", "0", "output"): "b",
        ("kafka", "topics", "1", "input"): "c",
        ("kafka", "topics", "1", "output"): "d",
        ("kafka", "evidence"): "e",
    }
    counts = {"a": 1, "b": 1, "c": 4, "d": 3, "e": 1}
    (fault,) = checks._faults_of_topics(topics, counts, {"a": {"cleanup.policy": "compact"}})
    assert fault == (("kafka", "topics", "1", "output"), "topic d has 3 partitions, the input 4: add partitions", None)
    (fault,) = checks._faults_of_topics(topics, counts | {"d": 4}, {"b": {"cleanup.policy": "compact"}})
    assert (fault.path, fault.message[:20]) == (("kafka", "topics", "0", "output"), "topic b is compacted")
    limits = {"b": 17_384, "d": 17_383, "e": 1}
    (fault,) = checks._about_sizes(topics, limits, policy_of({"x": quasi()}), settings)
    assert (fault.path, fault.message[:28]) == (("kafka", "topics", "1", "output"), "topic d accepts 17383 bytes ")


TREE = {"Any": {"Health": ["nurse", "é" * 10], "Law": ["judge"]}}


@pytest.mark.parametrize(
    ("attribute", "longest"),
    [
        ({}, 0),
        ({"scale": "time"}, 0),
        ({"scale": "nominal"}, 1000),
        ({"scale": "nominal", "taxonomy": TREE}, 1000),
        ({"scale": "nominal", "taxonomy": TREE, "unknown": "quarantine"}, 22),
        ({"scale": "ordinal", "order": ["low", 2, 'hi"gh']}, 8),
    ],
)
def test_the_longest_category_fits_the_output_and_the_topic_of_clusters(
    attribute: dict[str, Any], longest: int
) -> None:
    """A row has the categories of its cluster, which are not counted with the record."""
    quasi_identifier = {"role": "quasi_identifier", **attribute}
    policy = policy_of({"x": quasi_identifier, "y": quasi_identifier})
    settings = KafkaSection(input="a", output="b", clusters="c", max_record_bytes=1000)
    topics = named_topics(settings)
    of_row, of_cluster = 17_384 + 2 * longest, 16_384 + 2 * longest
    assert list(checks._about_sizes(topics, {"b": of_row, "c": of_cluster}, policy, settings)) == []
    about_row, about_cluster = checks._about_sizes(topics, {"b": of_row - 1, "c": of_cluster - 1}, policy, settings)
    assert about_row.path == ("kafka", "output")
    assert f"a record can have {of_row}: raise" in about_row.message
    assert about_cluster.path == ("kafka", "clusters")
    assert f"a message about a cluster can have {of_cluster}: raise" in about_cluster.message


def test_steering_attributes_need_no_space() -> None:
    steering = {"w": {"role": "steering", "scale": "nominal"}, "x": quasi()}
    policy = policy_of(steering, steering={"by": [{"attribute": "w", "weight": 1}]})
    settings = KafkaSection(input="a", output="b", max_record_bytes=1000)
    assert list(checks._about_sizes(named_topics(settings), {"b": 17_384}, policy, settings)) == []


@pytest.mark.parametrize(
    ("count", "config", "words"),
    [
        (4, {"cleanup.policy": "compact"}, []),
        (9, {"cleanup.policy": "compact", "max.message.bytes": "8192"}, []),
        (4, {}, []),  # the principal may not see the settings; a warning says so
        (4, {"cleanup.policy": "delete"}, ["topic p is not compacted only"]),
        (4, {"cleanup.policy": "compact, delete"}, ["topic p is not compacted only"]),
        (4, {"cleanup.policy": ""}, ["topic p is not compacted only"]),
        (3, {"cleanup.policy": "compact"}, ["topic p has 3 partitions, an input 4: add partitions"]),
        (1, {"cleanup.policy": "compact"}, ["topic p has 1 partition, an input 4: add partitions"]),
        (4, {"max.message.bytes": "8191"}, ["topic p takes less than 8192 bytes at once"]),
    ],
    ids=str,
)
def test_the_copy_of_the_progress_must_keep_the_last_message_of_each_partition(
    count: int, config: dict[str, str], words: list[str]
) -> None:
    settings = KafkaSection(
        topics=[TopicPairSection(input="a", output="b"), TopicPairSection(input="c", output="d")], progress_copy="p"
    )
    topics = named_topics(settings)
    assert topics["kafka", "progress_copy"] == "p"
    counts = {"a": 1, "b": 1, "c": 4, "d": 4, "p": count}
    faults = list(checks._faults_of_topics(topics, counts, {"p": config}))
    assert [fault.path for fault in faults] == [("kafka", "progress_copy")] * len(words)
    assert [fault.message[: len(text)] for fault, text in zip(faults, words, strict=True)] == words
    (missing,) = checks._faults_of_topics(topics, dict.fromkeys("abcd", 9), {})
    assert missing.message[:36] == "topic p does not exist or may not be"


# ---------------------------------------------------------------- permissions


SETTINGS = KafkaSection(input="in", output="out", group="g")
TOPICS: dict[FieldPath, str] = {("kafka", "input"): "in", ("kafka", "output"): "out"}
READ_AND_DESCRIBE, WRITE_AND_DESCRIBE, BOTH_AND_DESCRIBE = 0b1_0000_1000, 0b1_0001_0000, 0b1_0001_1000


class Answering:
    """A client whose broker gives these answers."""

    def __init__(
        self, operations: dict[str, int] | Exception, refusals: dict[tuple[str, int], Exception] | None = None
    ) -> None:
        self.operations, self.refusals = operations, refusals or {}
        self._client = SimpleNamespace(get_random_node=lambda: 1, send=self.send)

    async def send(self, _: int, __: object) -> Any:
        if isinstance(self.operations, Exception):
            raise self.operations
        topics = [
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


IDS_REFUSED = "the principal may not use its transactional ids: grant WRITE on those with the prefix g-in- in the ACLs"
GRANT_OUT = "the principal may not use topic out: grant WRITE on topic out in the ACLs"


@pytest.mark.parametrize(
    ("operations", "faults"),
    [
        ({"in": READ_AND_DESCRIBE, "out": BOTH_AND_DESCRIBE}, []),
        ({"in": 0b1_0000_0100, "out": 0b1_0000_0100}, []),  # all operations as one bit
        ({"in": READ_AND_DESCRIBE, "out": READ_AND_DESCRIBE}, [("kafka.output", GRANT_OUT)]),
        (
            {"in": WRITE_AND_DESCRIBE, "out": 0b1_0000_0000},
            [
                ("kafka.input", "the principal may not use topic in: grant READ on topic in in the ACLs"),
                ("kafka.output", GRANT_OUT.replace("WRITE", "READ and WRITE")),
            ],
        ),
        # The broker does not say what is allowed.
        ({"in": -(2**31), "out": -(2**31)}, []),
        ({"in": 0, "out": 0}, []),
        ({}, []),
        (NotImplementedError("version"), []),
        (kafka_errors.IncompatibleBrokerVersion("version"), []),
    ],
    ids=str,
)
async def test_each_operation_that_is_missing_on_a_topic_is_named(
    operations: dict[str, int] | Exception, faults: list[tuple[str, str]]
) -> None:
    assert await found(Answering(operations)) == faults


@pytest.mark.parametrize(
    ("refusals", "words"),
    [
        (
            {
                ("g", 0): kafka_errors.GroupAuthorizationFailedError("other"),
                ("g-in-0", 1): kafka_errors.TransactionalIdAuthorizationFailed("other"),
            },
            [
                "the principal may not use group g: grant READ on it in the ACLs",
                IDS_REFUSED,
            ],
        ),
        ({("g", 0): kafka_errors.GroupCoordinatorNotAvailableError()}, []),
    ],
    ids=["not allowed", "not available"],
)
async def test_group_and_transactional_ids_that_may_not_be_used_are_named_together(
    refusals: dict[tuple[str, int], Exception], words: list[str]
) -> None:
    assert await found(Answering({}, refusals)) == [("kafka.group", text) for text in words]
