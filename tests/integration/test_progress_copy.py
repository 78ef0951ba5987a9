"""The copy of the progress on a real broker: either of the two stores may be lost; a contradiction is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import RecordsToDelete
from shoal.errors import BrokerError, InputError
from shoal.kafka import StartOptions, progress_copy
from shoal.kafka.metadata import MetadataCipher
from structlog.testing import capture_logs
from support.kafka_broker import Message, admin, end_offsets, open_transaction, produce, read_all
from support.raw_log import delete_group
from support.running import Stage

COMPACTED = {"cleanup.policy": "compact"}
OLD, NEW = "7f" * 4 + bytes(range(28)).hex(), bytes(range(60, 92)).hex()
CONTINUE = StartOptions()
"""Without --from: a start needs progress."""


@pytest.fixture
async def stage(stage: Stage) -> Stage:
    """Return a stage with a copy of its progress."""
    await stage.renew("copy", 1, COMPACTED)
    return stage


def without_copy(stage: Stage) -> None:
    del stage.document["kafka"]["progress_copy"]


def with_copy(stage: Stage) -> None:
    stage.document["kafka"]["progress_copy"] = stage.topics["copy"]


async def lose_group(stage: Stage) -> None:
    """Delete the group with its offsets, as the broker does when they have expired."""
    await delete_group(stage.bootstrap, stage.group)
    assert await stage.committed() is None


async def empty_output(stage: Stage) -> None:
    """Delete all records of the output, as retention does."""
    end = (await end_offsets(stage.bootstrap, stage.topics["output"]))[0]
    async with admin(stage.bootstrap) as client:
        await client.delete_records({stage.topic_partition(topic="output"): RecordsToDelete(end)})


async def report(stage: Stage) -> dict[str, Any]:
    (line,) = await stage.report()
    return line


async def copies(stage: Stage) -> list[Message]:
    return await read_all(stage.bootstrap, stage.topics["copy"])


async def put_into_copy(stage: Stage, value: bytes | None, key: bytes | None) -> None:
    await produce(stage.bootstrap, stage.topics["copy"], [value], keys=[key], partitions=0)


async def test_either_store_may_be_lost(stage: Stage) -> None:
    record_ids = await stage.worked()
    before = await stage.progress()
    assert before.state.incomplete
    assert ((line := await report(stage))["copy"], line["copy_watermark"]) == ("same", before.state.committed_offset)
    text = await stage.export()
    await lose_group(stage)
    assert (await report(stage))["copy"] == "newer"
    assert await stage.export() == text
    record_ids += await stage.worked(start=CONTINUE)
    messages = await copies(stage)
    assert {json.dumps(json.loads(one.key or b"")) for one in messages} == {
        f'["{stage.group}", "{stage.topics["input"]}", 0]'
    }
    # The message is deleted, as with a topic that was recreated.
    await put_into_copy(stage, None, messages[-1].key)
    assert ((line := await report(stage))["copy"], line["copy_watermark"]) == ("missing", None)
    record_ids += await stage.worked(start=CONTINUE)
    assert (await report(stage))["copy"] == "same"
    await stage.drained(record_ids)


async def test_the_copy_prevails_over_an_older_commit_of_another_tool(stage: Stage) -> None:
    record_ids = await stage.worked()
    older = await stage.committed()
    assert older is not None
    record_ids += await stage.worked()
    await stage.commit(older.offset, older.metadata)
    await empty_output(stage)
    assert (await report(stage))["copy"] == "newer"
    released = (await end_offsets(stage.bootstrap, stage.topics["output"]))[0]
    await stage.started(CONTINUE)
    assert (await report(stage))["copy"] == "same"
    assert (await end_offsets(stage.bootstrap, stage.topics["output"]))[0] == released


async def test_an_old_copy_is_refused_when_the_group_is_lost(stage: Stage) -> None:
    """Workers ran without the setting, and retention has removed what they published."""
    record_ids = await stage.worked()
    stale = await stage.export()
    without_copy(stage)
    record_ids += await stage.worked()
    text = await stage.export()
    with_copy(stage)
    assert (await report(stage))["copy"] == "older"
    await lose_group(stage)
    assert "holds records that were published after the copy" in await stage.refusal()
    await empty_output(stage)
    words = await stage.refusal()
    assert "no longer shows what followed the copy" in words
    assert "export that was made before the loss" in words
    # The refusal cannot be bypassed with an export of the same copy, made now or when it was new.
    with pytest.raises(InputError, match="no longer shows what followed the copy"):
        await stage.export()
    with pytest.raises(InputError, match="no longer shows what followed the copy"):
        await stage.bring_back(stale)
    assert await stage.committed() is None
    assert await stage.bring_back(text) == {stage.topics["input"]: [0]}
    assert (await report(stage))["copy"] == "same"
    record_ids += await stage.worked(start=CONTINUE)
    released = await stage.outcomes()
    assert released
    assert max(released.values()) == 1


async def test_contradicting_progress_is_refused(stage: Stage) -> None:
    await stage.worked()
    commit, topic = await stage.progress(), stage.topics["input"]
    first, *others = commit.state.incomplete
    assert first > 0
    # Another history: offset 0 is incomplete, and the oldest incomplete offset is completed.
    other = replace(commit, state=replace(commit.state, committed_offset=0, incomplete=(0, *others)))
    await stage.commit(0, MetadataCipher.of(stage.settings()).encode(other, topic, 0))
    words = await stage.refusal(CONTINUE)
    assert f"{topic}-0: the progress of group {stage.group} and its copy in {stage.topics['copy']} contradict" in words
    with pytest.raises(InputError, match="contradict each other"):
        await stage.export()
    assert (await report(stage))["copy"] == "contradicts the group"
    await stage.started(StartOptions(skip_to_end=True))
    assert (await report(stage))["copy"] == "same"


async def test_an_import_never_goes_back_behind_the_copy(stage: Stage) -> None:
    record_ids = await stage.worked()
    text = await stage.export()
    record_ids += await stage.worked()
    await lose_group(stage)
    with pytest.raises(InputError, match="the committed progress is ahead of the file"):
        await stage.bring_back(text)
    assert await stage.committed() is None
    await stage.drained(record_ids)


async def test_the_copy_is_encrypted_and_its_keys_rotate(stage: Stage) -> None:
    stage.give_keys(OLD)
    record_ids = await stage.worked()
    messages = await copies(stage)
    assert {json.loads(one.value or b"")["metadata"][:11] for one in messages} == {"shoal1-aes:"}
    await lose_group(stage)
    stage.give_keys(NEW)
    assert "encrypted with a key that is not given" in await stage.refusal(CONTINUE)
    stage.give_keys(NEW, OLD)
    record_ids += await stage.worked(start=CONTINUE)
    # The end of the output is protected, too.
    (*_, last) = await copies(stage)
    forged = json.loads(last.value or b"")
    assert forged["output_end"] > 0
    forged["output_end"] += 10
    await put_into_copy(stage, json.dumps(forged).encode(), last.key)
    assert "is broken, or belongs to another group" in await stage.refusal(CONTINUE)
    await put_into_copy(stage, last.value, last.key)
    await lose_group(stage)
    stage.give_keys(NEW)
    await stage.drained(record_ids)


async def test_a_transaction_that_hides_the_copy_of_one_partition_stops_no_other(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_copy, "STABLE_S", 0.5)
    stage = await Stage.create(bootstrap, tmp_path, partitions=2)
    copy = await stage.renew("copy", 2, COMPACTED)
    record_ids = await stage.put(30, 0, 1)
    words, name = "partitions not opened; the others go on", f"{stage.topics['input']}-1: {copy}-1: an open transaction"
    with capture_logs() as lines:
        async with open_transaction(bootstrap, copy, b"{}", 1, b"of another group"):
            with pytest.raises(BrokerError, match=r"giving up after \d+ s \(kafka\.patience_s\)$") as caught:
                async with stage.run(StartOptions(reset="earliest", drain=True), patience_s=1) as drain:
                    await drain.ended()
            assert (caught.value.exit_code, str(caught.value).startswith(f"--drain: {name}")) == (3, True)
            # The drain has read the other partition to its end.
            record_ids += await stage.put(30)
            async with stage.run(patience_s=1) as run:
                await run.until_read(30)
                await run.until(lambda: sum(line["event"] == words for line in lines) >= 3, "the warnings")
                record_ids += await stage.put(30)
                await run.until_read(60)
                assert (run.total("shoal_partitions_opening"), run.service.health.ready) == (1, False)
        assert {line["reason"].startswith(name) for line in lines if line["event"] == words} == {True}
        await stage.started()
    assert [line for line in lines if line["event"] == "consumer loop ended"] == []
    await stage.drained(record_ids)
