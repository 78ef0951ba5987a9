"""Where a partition begins, and everything that a start must refuse, with its remedy."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any, Literal

import pytest
from aiokafka.admin import RecordsToDelete
from shoal.errors import InputError
from shoal.kafka import StartOptions
from shoal.kafka.metadata import CommittedState, encode
from shoal.kafka.offsets import OffsetState
from shoal.policy import Policy
from support.kafka_broker import admin, create_topic, end_offsets, is_shown, produce, wait_for
from support.running import EARLIEST, Stage, sample
from support.topic_changes import recreate_topic

SKIP = StartOptions(skip_to_end=True)


def forget_progress(stage: Stage) -> None:
    """Lose the group's metadata: as after a week without members, or with another group."""
    stage.document["kafka"]["group"] += "-again"


async def released(stage: Stage, count: int = 30) -> list[tuple[int, int]]:
    """Append records and release all of them."""
    record_ids = await stage.put(count)
    await stage.drained(record_ids)
    return record_ids


async def recreate(stage: Stage) -> None:
    """Recreate the input. Kafka deletes the group's offsets with it; they are committed again, like another tool."""
    progress = await stage.committed()
    assert progress is not None
    await recreate_topic(stage, "input")
    await wait_for(stage.committed, lambda found: found is None, what="forgotten offsets")
    await stage.commit(progress.offset, progress.metadata)


async def skips(stage: Stage, count: int) -> None:
    """Start with --skip-to-end, and check how many records that skips."""
    async with stage.run(SKIP) as run:
        await run.until_ready()
        assert run.total("shoal_records_skipped_total") == count


async def delete_before(stage: Stage, offset: int) -> None:
    async with admin(stage.bootstrap) as client:
        await client.delete_records({stage.topic_partition(): RecordsToDelete(offset)})


async def test_an_address_that_never_answers_costs_a_start_seconds(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_ids, good = await stage.put(30), stage.bootstrap
    with socket.create_server(("127.0.0.1", 0)) as listening:
        silent = f"127.0.0.1:{listening.getsockname()[1]}"
        stage.bootstrap = ",".join([silent] * 4 + [good])  # the client tries them in an order of its own
        monkeypatch.setattr("support.running.is_shown", lambda _, *topics: is_shown(good, *topics))
        async with stage.run() as run:
            async with asyncio.timeout(20):
                await run.until_read(len(record_ids))
                await run.until_ready()
    stage.bootstrap = good


# ---------------------------------------------------------------- no progress


async def test_from_does_not_override_a_commit(stage: Stage) -> None:
    record_ids = await released(stage)
    origins: tuple[Literal["earliest"], Literal["latest"]] = ("earliest", "latest")
    for origin in origins:
        record_ids += await stage.put(30)
        # With `latest` the new records would never be released; with `earliest` the first ones would be released twice.
        await stage.started(StartOptions(reset=origin), read=30)
        await stage.drained(record_ids)


async def test_from_latest_begins_at_the_end_and_commits_that_offset(stage: Stage) -> None:
    early = await stage.put(30)
    async with stage.run(StartOptions(reset="latest")) as run:
        await run.until_ready()
        assert (await stage.progress()).state == OffsetState(
            committed_offset=30, next_offset=30, released_from=30, next_cluster_number=30
        )
        late = await stage.put(30)
        await run.until_read(30)
    await stage.drained(late)
    assert not set(early) & set(await stage.outcomes())


async def test_a_lost_commit_beside_an_output_that_retention_has_emptied_is_refused(stage: Stage) -> None:
    """Nothing else shows that its records were published: neither evidence nor cluster messages are kept."""
    for name in ("evidence", "clusters"):
        del stage.document["kafka"][name]
    await released(stage)
    before = set(await stage.serials())
    forget_progress(stage)
    tp = stage.topic_partition(topic="output")
    end = (await end_offsets(stage.bootstrap, tp.topic))[0]
    async with admin(stage.bootstrap) as client:
        await client.delete_records({tp: RecordsToDelete(end)})
    words = await stage.refusal()
    for word in (f"{stage.topics['input']}-0", f"{tp.topic}-0 before offset {end}", "--import", "--skip-to-end"):
        assert word in words
    # Where no record of the input is before the place to begin, none can be published twice.
    async with stage.run(StartOptions(reset="latest")) as run:
        await run.until_ready()
        later = await stage.put(30)
        await run.until_read(30)
    await stage.drained(later)
    assert before
    assert not before & set(await stage.serials())


@pytest.mark.parametrize(("trace", "partitions"), [("evidence", 2), ("clusters", 1)])
async def test_a_lost_commit_beside_an_empty_output_is_refused_if_there_is_evidence(
    bootstrap: str, tmp_path: Path, trace: str, partitions: int
) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=partitions)
    record_ids = await stage.put(30, partitions - 1)
    await stage.drained(record_ids)
    forget_progress(stage)
    for name in {"output", "evidence", "clusters"} - {trace}:
        stage.topics[name] = stage.document["kafka"][name] = await create_topic(bootstrap, partitions)
    with pytest.raises(InputError) as caught:
        async with stage.run() as run:
            await run.ended()
    (words,) = str(caught.value).splitlines()
    # A partition without evidence is not refused.
    assert words.startswith(f"{stage.topics['input']}-{partitions - 1}: ")
    for word in (f"{stage.topics[trace]}-0", "--import", "--skip-to-end"):
        assert word in words


async def test_skip_to_end_after_a_lost_commit_continues_at_the_end_and_counts_the_gap(stage: Stage) -> None:
    record_ids = await released(stage)
    gap = await stage.put(7)
    forget_progress(stage)
    words = await stage.refusal()
    for word in (f"{stage.topics['input']}-0", f"{stage.topics['output']}-0", "--import", "--skip-to-end"):
        assert word in words
    async with stage.run(SKIP) as run:
        await run.until_ready()
        assert run.total("shoal_records_skipped_total", partition="0") == 37
        record_ids += await stage.put(30)
        await run.until_read(30)
    await stage.drained(record_ids)
    assert not set(gap) & set(await stage.outcomes())


# ---------------------------------------------------------------- the log and the progress do not fit


async def test_a_committed_offset_that_is_no_longer_retained_is_refused_and_can_be_skipped(stage: Stage) -> None:
    record_ids = await released(stage)
    await stage.put(20)
    await delete_before(stage, 40)
    words = await stage.refusal()
    assert "begins at 40, after the committed offset 30" in words
    assert "retention" in words
    assert "--skip-to-end" in words
    async with stage.run(SKIP) as run:
        await run.until_ready()
        assert run.total("shoal_records_skipped_total") == 20
        late = await stage.put(30)
        await run.until_read(30)
    await stage.drained(late)
    assert len(await stage.read()) == len(record_ids) + len(late)


async def test_deleted_records_that_waited_are_skipped_and_the_others_go_on(stage: Stage) -> None:
    record_ids = await stage.worked(40)
    waiting = (await stage.progress()).state.incomplete
    first_kept = waiting[len(waiting) // 2]
    await delete_before(stage, first_kept)
    assert "--skip-lost" in await stage.refusal()
    lost = [offset for offset in waiting if offset < first_kept]
    async with stage.run(StartOptions(skip_lost=True)) as run:
        await run.until_ready()
        assert run.total("shoal_records_skipped_total") == len(lost)
    await stage.started(EARLIEST)  # the next start needs no option
    late = await stage.put(20)
    await stage.drained([(0, offset) for offset in waiting if offset >= first_kept] + late)
    assert set(record_ids) - set(await stage.outcomes()) == {(0, offset) for offset in lost}


async def test_a_log_that_expired_up_to_its_last_marker_has_lost_no_record(stage: Stage) -> None:
    await stage.put(30, transactional_id=f"{stage.group}-t")
    await stage.drained()
    end = (await end_offsets(stage.bootstrap, stage.topics["input"]))[0]
    assert end == 31
    async with stage.run(EARLIEST):
        await wait_for(
            stage.progress,
            lambda found: found.state.committed_offset == end,
            what="a committed offset behind the last transaction marker",
        )
    await delete_before(stage, end)
    await stage.started(EARLIEST)


@pytest.mark.parametrize(
    "metadata",
    ["", encode(CommittedState(OffsetState(10, 10), "0" * 16, 1), "another-topic", 0)],
    ids=["none", "of another topic"],
)
async def test_a_committed_offset_with_foreign_metadata_is_refused_and_can_be_skipped(
    stage: Stage, metadata: str
) -> None:
    await stage.put(20)
    await stage.commit(10, metadata)
    words = await stage.refusal()
    for word in (f"{stage.topics['input']}-0", "--import", "--skip-to-end"):
        assert word in words
    await skips(stage, 10)
    assert (await stage.progress()).state.committed_offset == 20


async def test_a_truncated_log_is_refused_and_can_be_skipped(stage: Stage) -> None:
    await released(stage)
    await recreate(stage)
    await stage.put(12)
    words = await stage.refusal()
    assert "ends at 12, before offset 30" in words
    assert "--skip-to-end" in words
    await skips(stage, 12)
    assert len(await stage.read()) == 30


@pytest.mark.parametrize("held", [0, 8])
async def test_a_log_of_the_same_length_with_other_timestamps_is_refused_and_can_be_skipped(
    stage: Stage, held: int
) -> None:
    await released(stage)
    if held:
        await stage.put(held)
        async with stage.run() as run:
            await run.until_read(held)
            # Something that is committed beside what is held.
            await produce(stage.bootstrap, stage.topics["input"], [b"{"], partitions=0)
            await run.until(lambda: run.total("shoal_records_total", outcome="quarantined") == 1)
    before = len(await stage.read())
    end = (await end_offsets(stage.bootstrap, stage.topics["input"]))[0]
    await recreate(stage)
    await stage.put(end + 5, timestamps_ms=[1_600_000_000_000 + number for number in range(end + 5)])
    words = await stage.refusal()
    assert "holds a different record than before the restart" in words
    assert "--skip-to-end" in words
    await skips(stage, end + 5)
    assert len(await stage.read()) == before


# ---------------------------------------------------------------- checks before the first record


async def test_all_refusals_are_reported_together(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=3, stream={"delta": 50_000})
    narrow = await create_topic(bootstrap, 2)
    compacted = await create_topic(bootstrap, 1, {"cleanup.policy": "compact,delete"})
    small: dict[str, Any] = {
        "output": narrow,
        "quarantine": compacted,
        "clusters": "no-such-topic",
        "evidence": "nor-this",
    }
    words = await stage.refusal(**small)
    first, *others = words.splitlines()
    assert first.endswith(": 5 faults")
    assert sum(line.startswith("  line ") for line in others) == 4, "each with the line of its field"
    for word in (
        "stream.delta: 50000 does not fit",
        f"kafka.output: topic {narrow} has 2 partitions, the input 3",
        f"kafka.quarantine: topic {compacted} is compacted",
        "kafka.clusters: topic no-such-topic does not exist",
        "kafka.evidence: topic nor-this does not exist",
    ):
        assert word in words


async def test_an_output_with_too_small_a_message_limit_is_refused_with_both_remedies(stage: Stage) -> None:
    small = await create_topic(stage.bootstrap, 1, {"max.message.bytes": "100000"})
    words = await stage.refusal(output=small)
    assert "accepts 100000 bytes at once" in words
    assert "max.message.bytes" in words
    assert "kafka.max_record_bytes" in words
    stage.document["kafka"] |= {"output": small, "max_record_bytes": 80_000}
    stage.topics["output"] = small
    # One batch of all of them would be more than the topic takes.
    record_ids = await stage.send([stage.record(who="p" * 10_000 + str(n)) for n in range(600)])
    await stage.drained(record_ids)


# ---------------------------------------------------------------- a changed policy


def change_k(stage: Stage, k: int) -> None:
    stage.document["privacy"] = {"k": k}


async def test_a_changed_policy_continues_from_the_committed_offset_and_logs_it(stage: Stage) -> None:
    record_ids = await released(stage)
    record_ids += await stage.put(25)
    async with stage.run() as run:
        await run.until_read(25)
        assert run.total("shoal_policy_changes_total") == 0
    old = len(await stage.read())
    change_k(stage, 4)
    record_ids += await stage.put(30)
    async with stage.process() as process:
        await process.until_ready()
        (line,) = process.lines("policy changed; continuing from the committed offset")
        watermark = (await stage.progress()).state.committed_offset
        assert line["partition"] == 0
        assert line["watermark"] <= watermark
        metrics = (await process.get("/metrics"))[1]
        assert sample(metrics, "shoal_policy_changes_total", partition="0") == 1
        assert await process.terminated() == 0
    await stage.drained(record_ids)
    clusters = await stage.objects("evidence")
    later = [cluster for cluster in clusters if min(cluster["offsets"]) >= 55]
    assert later
    assert all(len(cluster["offsets"]) >= 4 for cluster in later)
    assert len(await stage.read()) > old
    # Each line of evidence names the policy under which its cluster was decided.
    (fingerprint,) = {cluster["policy"] for cluster in later}
    assert f'fingerprint="{fingerprint}"' in metrics
    assert clusters[0]["policy"] != fingerprint


async def test_a_changed_policy_with_a_pending_flush_is_refused_until_drained(stage: Stage) -> None:
    record_ids = await stage.put(6)
    policy = Policy.load(stage.policy_file())
    decided = OffsetState(committed_offset=0, next_offset=6, incomplete=(0, 1, 2, 3, 4, 5), flush_at_offset=6)
    text = encode(CommittedState(decided, policy.fingerprint, 1_790_000_000_000), stage.topics["input"], 0)
    await stage.commit(0, text)
    change_k(stage, 2)
    words = await stage.refusal()
    assert "policy has changed" in words
    assert "--drain" in words
    await stage.drained(record_ids)
    async with stage.run() as run:
        await run.until_ready()
        assert run.total("shoal_policy_changes_total") == 0, "the drain has committed under this policy"


async def test_unfinished_clusters_are_completed_only_under_their_own_policy(stage: Stage) -> None:
    stage.document["stream"] |= {"delta": 10, "release": "ordered"}
    await stage.put(60)
    async with stage.run() as run:
        await run.until_read(60)
        await wait_for(stage.read, lambda found: 0 < len(found) < 60, 30, "records that left")
    state = (await stage.progress()).state
    assert state.unfinished_clusters, "the worker stopped between two records of a cluster"
    left = [message.value for message in await stage.read()]
    own = stage.document["privacy"]["k"]
    change_k(stage, own + 1)
    for start in (EARLIEST, StartOptions(drain=True)):
        words = await stage.refusal(start)
        assert "still to be completed" in words
        assert "--drain" in words
    assert [message.value for message in await stage.read()] == left
    change_k(stage, own)
    await stage.drained()
    everything = await stage.read()
    assert [message.value for message in everything[: len(left)]] == left
    record_ids = sorted(stage.record_id_of[json.loads(message.value or b"")["serial"]] for message in everything)
    assert len(record_ids) + len(await stage.read("quarantine")) == 60
    assert not (await stage.progress()).state.unfinished_clusters
