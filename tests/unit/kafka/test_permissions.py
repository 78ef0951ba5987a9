"""A refusal of the broker names the resource, the missing operation and where to grant it."""

from __future__ import annotations

import pytest
from aiokafka import errors as kafka_errors
from shoal.errors import BrokerError
from shoal.kafka.client import Operation, broker_error
from shoal.policy import KafkaSection

pytestmark = pytest.mark.unit

SETTINGS = KafkaSection(input="in", output="out", evidence="proof", progress_copy="twin", group="g")
PAIRS = KafkaSection.model_validate(
    {
        "topics": [{"input": "in1", "output": "out1"}, {"input": "in2", "output": "out2"}],
        "evidence": "proof",
        "group": "g",
    }
)
TOPIC = kafka_errors.TopicAuthorizationFailedError
IDS = kafka_errors.TransactionalIdAuthorizationFailed


@pytest.mark.parametrize(
    ("error", "settings", "operation", "words"),
    [
        (TOPIC("out"), SETTINGS, "READ", "may not use topic out: grant READ on topic out in"),
        (TOPIC({"out"}), SETTINGS, "WRITE", "may not use topic out: grant WRITE on topic out in"),
        (TOPIC({"out", "proof"}), SETTINGS, "WRITE", "topic out, proof: grant WRITE on topics out, proof in"),
        # A producer only commits the offsets of its input.
        (TOPIC({"in", "twin"}), SETTINGS, "WRITE", "topic in, twin: grant READ on topic in and WRITE on topic twin in"),
        (TOPIC({"in2", "out2"}), PAIRS, "WRITE", "grant READ on topic in2 and WRITE on topic out2 in"),
        (TOPIC(), SETTINGS, "READ", "may not READ one of the topics in, out, proof, twin: grant READ on it in"),
        (TOPIC("other"), None, "WRITE", "may not WRITE one of the topics: grant WRITE on it in"),
        (kafka_errors.GroupAuthorizationFailedError(), SETTINGS, "WRITE", "use group g: grant READ on it in"),
        (kafka_errors.GroupAuthorizationFailedError("other"), None, "READ", "use the group: grant READ on it in"),
        (IDS("other"), SETTINGS, "WRITE", "transactional ids: grant WRITE on those with the prefix g-in- in"),
        (IDS(), PAIRS, "WRITE", "grant WRITE on those with the prefix g-in1- and g-in2- in"),
        (IDS(), None, "WRITE", "may not use its transactional ids: grant WRITE on those in"),
        (kafka_errors.ClusterAuthorizationFailedError(), SETTINGS, "WRITE", "grant IDEMPOTENT_WRITE on the cluster in"),
    ],
)
def test_a_refusal_names_the_resource_and_the_operation(
    error: Exception, settings: KafkaSection | None, operation: Operation, words: str
) -> None:
    refusal = broker_error(error, settings, operation)
    assert type(refusal) is BrokerError
    assert f"{words} the ACLs" in str(refusal)
    assert "other" not in str(refusal)
