"""What all metrics have in common: their group, counters from 0 on, and gauges that end with their partition."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from shoal.formats import JsonEncoder
from shoal.kafka.credentials import certificate_files
from shoal.kafka.offsets import OffsetState
from shoal.observability import Metrics
from shoal.policy import KafkaSection, Policy, Scale
from shoal.streams import PartitionPipeline
from support.certificates import Authority
from support.messages import Message
from support.partition_tasks import START_MS, RecordingSink, task_of
from support.scales import attribute, policy_with

pytestmark = pytest.mark.unit

NOW_S = 1_700_000_000.0
EXPIRY = "shoal_certificate_expiry_timestamp_seconds"


def policy() -> Policy:
    return policy_with(attribute("city", Scale.NOMINAL), k=2, delta=6)


def assigned(group: str = "") -> Metrics:
    """Return the metrics of a process that was assigned a partition."""
    metrics = Metrics(group)
    metrics.set_policy(policy())
    metrics.add_partition("in", 0, PartitionPipeline(policy(), JsonEncoder(policy())))
    return metrics


def scraped(metrics: Metrics) -> list[Any]:
    text = generate_latest(metrics.registry).decode()
    return [
        one
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if not one.name.endswith("_created")
    ]


# ---------------------------------------------------------------- the group


def test_every_series_has_the_group() -> None:
    samples = scraped(assigned("visits"))
    assert {one.labels.get("group") for one in samples} == {"visits"}
    names = {one.name for one in samples}
    assert names >= {"shoal_delay_seconds_bucket", "shoal_build_info", "process_start_time_seconds", "shoal_ready"}


def test_without_a_group_no_series_has_one() -> None:
    assert not [one for one in scraped(assigned()) if "group" in one.labels]


def test_a_group_with_quotation_marks_is_one_label() -> None:
    group = 'a"b\\c\nd'
    assert {one.labels["group"] for one in scraped(assigned(group))} == {group}


# ---------------------------------------------------------------- counters of a partition


def test_counters_of_a_partition_are_0_from_its_assignment_on() -> None:
    found = {
        (one.name, one.labels.get("outcome", ""), one.labels.get("reason", "")): one.value
        for one in scraped(assigned())
        if one.labels.get("partition") == "0"
    }
    assert found == {
        ("shoal_records_total", "in", ""): 0,
        ("shoal_records_total", "released", ""): 0,
        ("shoal_records_total", "suppressed", "suppressed"): 0,
        ("shoal_records_total", "quarantined", "undecodable"): 0,
        ("shoal_records_total", "quarantined", "invalid"): 0,
        ("shoal_records_total", "quarantined", "too_large"): 0,
        ("shoal_records_total", "dropped", "deletes"): 0,
        ("shoal_records_total", "dropped", "tombstones"): 0,
        ("shoal_clusters_released_total", "", ""): 0,
        ("shoal_values_clipped_total", "", ""): 0,
        ("shoal_clusters_early_total", "", ""): 0,
        ("shoal_records_skipped_total", "", ""): 0,
        ("shoal_records_dated_ahead_total", "", ""): 0,
        ("shoal_published_offsets_lost_total", "", ""): 0,
        ("shoal_policy_changes_total", "", ""): 0,
    }


def test_transactions_are_0_from_the_start_on() -> None:
    found = {one.labels["outcome"]: one.value for one in scraped(Metrics()) if one.name == "shoal_transactions_total"}
    assert found == {"committed": 0, "aborted": 0}


def test_a_partition_that_comes_back_keeps_its_counts() -> None:
    metrics = assigned()
    metrics.early.labels("in", 0).inc(3)
    metrics.add_partition("in", 0, PartitionPipeline(policy(), JsonEncoder(policy())))
    assert metrics.registry.get_sample_value("shoal_clusters_early_total", {"topic": "in", "partition": "0"}) == 3


def test_outcomes_that_no_record_had_are_not_in_the_totals() -> None:
    assert assigned().totals() == {"in": 0, "released": 0, "suppressed": 0, "quarantined": 0}


async def test_records_that_are_dated_ahead_are_counted() -> None:
    task, metrics = task_of(policy(), RecordingSink())
    ahead = START_MS + 7_200_000
    await task.process([Message(offset, ahead if offset < 3 else START_MS, b'{"city": "X"}') for offset in range(5)])
    labels = {"topic": "t", "partition": "0"}
    assert metrics.registry.get_sample_value("shoal_records_dated_ahead_total", labels) == 3


# ---------------------------------------------------------------- the oldest held record


def oldest(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("shoal_oldest_held_seconds", {"topic": "in", "partition": "0"})


@pytest.mark.parametrize(
    ("held_s", "shown"),
    [
        *((-5.0, 0), (0.0, 0), (0.9, 0), (1.0, 1), (1.9, 1), (2.0, 2), (4.9, 2), (5.0, 5), (9.9, 5), (10.0, 10)),
        *(
            (19.0, 10),
            (20.0, 20),
            (49.0, 20),
            (99.0, 50),
            (100.0, 100),
            (999.0, 500),
            (1000.0, 1000),
            (90_000.0, 50_000),
        ),
    ],
)
def test_the_time_of_the_oldest_record_is_rounded_down(held_s: float, shown: int) -> None:
    metrics = assigned()
    metrics.watch_oldest_held("in", 0, lambda: held_s)
    assert oldest(metrics) == shown


def test_the_time_of_the_oldest_record_is_that_of_the_scrape() -> None:
    metrics, held_s = assigned(), [0.0, 700.0, None]
    metrics.watch_oldest_held("in", 0, lambda: held_s[0])
    assert oldest(metrics) == 0
    held_s.pop(0)
    assert oldest(metrics) == 500, "without any event"
    held_s.pop(0)
    assert oldest(metrics) == 0, "none is held"


def test_gauges_of_a_revoked_partition_are_removed() -> None:
    metrics = assigned()
    metrics.watch_oldest_held("in", 0, lambda: None)
    metrics.held.labels("in", 0).set(1)
    metrics.lag.labels("in", 0).set(1)
    metrics.remove_partition("in", 0)
    left = {one.name for one in scraped(metrics) if "partition" in one.labels}
    assert not left & {"shoal_oldest_held_seconds", "shoal_records_held", "shoal_consumer_lag_records"}
    assert "shoal_records_total" in left


async def test_the_oldest_held_record_is_the_one_that_was_read_first() -> None:
    now_s = [100.0]
    task, _ = task_of(policy(), RecordingSink(), monotonic_clock=lambda: now_s[0])
    assert task.oldest_held_s is None
    await task.process([Message(0, START_MS - 500_000, b'{"city": "X"}')])
    now_s[0] += 7.0
    await task.process([Message(1, START_MS - 500_000, b'{"city": "X"}')])
    assert task.oldest_held_s == 7.0, "since it was read, not since it was produced"


def test_while_records_are_read_again_no_time_is_known() -> None:
    state = OffsetState(committed_offset=3, next_offset=9, incomplete=(3, 8))
    task, _ = task_of(policy(), RecordingSink(), state)
    assert task.is_restoring
    assert task.oldest_held_s is None


# ---------------------------------------------------------------- certificates


def expiries(metrics: Metrics) -> dict[str, float]:
    return {one.labels["certificate"]: one.value for one in scraped(metrics) if one.name == EXPIRY}


def days_left(seconds: float) -> int:
    return round((seconds - dt.datetime.now(dt.UTC).timestamp()) / 86_400)


def test_no_series_exists_without_certificates() -> None:
    assert expiries(Metrics()) == {}


def test_a_chain_expires_with_its_first_certificate_and_authorities_with_their_last(tmp_path: Path) -> None:
    authority, metrics = Authority(tmp_path), Metrics()
    files = [authority.issue(f"{days}", valid=dt.timedelta(days=days))[0] for days in (10, 3, 20)]
    together = tmp_path / "together.pem"
    together.write_bytes(b"".join(file.read_bytes() for file in files))
    metrics.certificates.watch("ca", str(together))
    metrics.certificates.watch("client", str(together))
    assert {name: days_left(seconds) for name, seconds in expiries(metrics).items()} == {"ca": 20, "client": 3}


def test_a_private_key_in_the_same_file_is_passed_over(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("worker", valid=dt.timedelta(days=4))
    certificate.write_bytes(key.read_bytes() + certificate.read_bytes())
    metrics = Metrics()
    metrics.certificates.watch("client", str(certificate))
    assert days_left(expiries(metrics)["client"]) == 4


def test_a_file_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    authority, metrics = Authority(tmp_path), Metrics()
    old, new = [authority.issue(name, valid=dt.timedelta(days=days))[0] for name, days in (("old", 2), ("new", 9))]
    metrics.certificates.watch("client", str(old))
    assert days_left(expiries(metrics)["client"]) == 2
    shutil.copy(new, tmp_path / "next.pem")
    (tmp_path / "next.pem").replace(old)
    assert days_left(expiries(metrics)["client"]) == 9


@pytest.mark.parametrize("content", [b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n", None])
def test_a_file_without_a_certificate_keeps_what_was_read_before(tmp_path: Path, content: bytes | None) -> None:
    file, metrics = Authority(tmp_path).issue("worker", valid=dt.timedelta(days=4))[0], Metrics()
    metrics.certificates.watch("client", str(file))
    before = expiries(metrics)
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    assert expiries(metrics) == before
    other = Metrics()
    other.certificates.watch("client", str(file))
    assert expiries(other) == {}, "nothing was ever read"


def test_the_certificates_of_the_settings_are_watched(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    tls = KafkaSection(security_protocol="SSL", ssl_cafile="ca.pem", ssl_certfile="client.pem")
    assert certificate_files(tls) == {"ca": "ca.pem", "client": "client.pem"}
    assert certificate_files(KafkaSection(security_protocol="SASL_SSL", ssl_cafile="ca.pem")) == {"ca": "ca.pem"}
    assert certificate_files(KafkaSection(security_protocol="SSL", ssl_cafile=str(pipe))) == {}, "a pipe is read once"
    assert certificate_files(KafkaSection(security_protocol="SASL_PLAINTEXT", ssl_cafile="ca.pem")) == {}
