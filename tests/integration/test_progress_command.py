"""`shoal progress`: what it reports, and that an import never takes anything back."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from shoal.errors import InputError
from support.kafka_broker import produce, wait_until
from support.running import Stage


async def refused(stage: Stage, text: str) -> str:
    before = [await stage.committed(partition) for partition in range(2)]
    with pytest.raises(InputError) as caught:
        await stage.bring_back(text)
    assert [await stage.committed(partition) for partition in range(2)] == before
    return str(caught.value)


async def worked(stage: Stage) -> list[tuple[int, int]]:
    return await stage.worked(60, (0, 1))


@pytest.fixture
async def stage(bootstrap: str, tmp_path: Path) -> Stage:
    return await Stage.create(bootstrap, tmp_path, partitions=2)


async def test_the_command_reports_each_partition_on_a_line(stage: Stage) -> None:
    async with stage.command("progress", name="before") as process:
        assert await process.ended() == 0
        lines = [json.loads(line) for line in process.out.read_text().splitlines()]
    assert [(one["partition"], one["state"], one["watermark"]) for one in lines] == [
        (0, "no progress", None),
        (1, "no progress", None),
    ]
    await worked(stage)
    began = datetime.now(UTC)
    async with stage.command("progress", name="after") as process:
        assert await process.ended() == 0
        lines = [json.loads(line) for line in process.out.read_text().splitlines()]
    for partition, line in enumerate(lines):
        snapshot = (await stage.progress(partition)).state
        assert line["partition"] == partition
        assert line["watermark"] == snapshot.committed_offset
        assert line["held"] == len(snapshot.incomplete) > 0
        assert line["next_offset"] == snapshot.next_offset
        assert line["clusters"] == snapshot.next_cluster_number > 0
        assert (line["state"], line["policy"]) == ("ok", "this")
        assert 0 <= (began - datetime.fromisoformat(line["last_commit"])).total_seconds() < 60


async def test_a_report_names_foreign_metadata_another_policy_and_a_pending_flush(stage: Stage) -> None:
    await worked(stage)
    stage.document["privacy"] = {"k": 4}
    await stage.commit(3, "by hand", 1)
    first, second = await stage.report()
    assert (first["state"], first["policy"]) == ("ok", "another")
    assert (second["state"], second["watermark"], second["held"]) == ("broken or foreign metadata", 3, None)


async def test_an_export_can_be_imported_after_the_group_was_lost(stage: Stage, tmp_path: Path) -> None:
    record_ids = await worked(stage)
    file = tmp_path / "progress.json"
    async with stage.command("progress", "--export", str(file), name="export") as process:
        assert await process.ended() == 0
    assert file.stat().st_mode & 0o077 == 0, process.said
    stage.document["kafka"]["group"] += "-again"
    async with stage.process("--from", "earliest") as process:
        assert await process.ended() == 2
    async with stage.command("progress", "--import", str(file), name="import") as process:
        assert await process.ended() == 0, process.said
        assert json.loads(process.out.read_text()) == {"imported": [0, 1]}
    await stage.drained(record_ids)


async def test_an_import_replaces_foreign_metadata(stage: Stage) -> None:
    record_ids = await worked(stage)
    text = await stage.export()
    for partition in range(2):
        await stage.commit(0, "", partition)
    assert await stage.bring_back(text) == {stage.topics["input"]: [0, 1]}
    await stage.drained(record_ids)


async def test_an_import_never_goes_back(stage: Stage) -> None:
    await worked(stage)
    text = await stage.export()
    record_ids = await worked(stage)
    words = await refused(stage, text)
    assert f"{stage.topics['input']}-0: the committed progress is ahead of the file" in words
    await stage.drained(record_ids)


async def test_an_import_is_refused_beside_records_that_were_published_after_the_export(stage: Stage) -> None:
    await worked(stage)
    text = await stage.export()
    record_ids = await worked(stage)
    # With the progress lost, only the output shows that the export is old.
    stage.document["kafka"]["group"] += "-again"
    fresh = text.replace(json.loads(text)["group"], stage.group)
    words = await refused(stage, fresh)
    assert f"{stage.topics['output']}-0 holds records that were published after the export" in words
    assert "--skip-to-end" in words
    assert record_ids


async def test_aborted_records_after_the_export_do_not_count_as_published(stage: Stage) -> None:
    record_ids = await worked(stage)
    text = await stage.export()
    await produce(
        stage.bootstrap, stage.topics["output"], [b"{}"], partitions=0, transactional_id=f"{stage.group}-x", abort=True
    )
    stage.document["kafka"]["group"] += "-again"
    assert await stage.bring_back(text.replace(json.loads(text)["group"], stage.group)) == {
        stage.topics["input"]: [0, 1]
    }
    await stage.drained(record_ids)


async def until_quiet(stage: Stage) -> None:
    """Wait until two exports, some commit intervals apart, are the same: no worker commits any more."""

    async def is_quiet() -> bool:
        first = await stage.export()
        await asyncio.sleep(1)
        return bool(first) and first == await stage.export()

    await wait_until(is_quiet, what="no more commits")


async def test_an_import_stops_a_worker_that_still_runs_from_committing_over_it(stage: Stage) -> None:
    record_ids = await stage.put(40, 0, 1)
    async with stage.run() as run:
        await run.until_read(80)
        await until_quiet(stage)
        text = await stage.export()
        assert await stage.bring_back(text) == {stage.topics["input"]: [0, 1]}
        # It is fenced at its next commit, reads the progress again and continues.
        record_ids += await stage.put(40, 0, 1)
        await run.until(lambda: run.total("shoal_transactions_total", outcome="aborted") > 0, "a fenced worker")
        await run.until(lambda: run.total("shoal_consumer_lag_records") == 0 and run.service.health.ready)
    await stage.drained(record_ids)


async def test_an_import_that_is_refused_disturbs_no_running_worker(stage: Stage) -> None:
    """Also where only the last partition is ahead of the file."""
    await stage.put(40, 0, 1)
    async with stage.run() as run:
        await run.until_read(80)
        await until_quiet(stage)
        text = await stage.export()
        await stage.put(40, 1)
        await run.until_read(120)
        await until_quiet(stage)
        assert f"{stage.topics['input']}-1: the committed progress is ahead of the file" in await refused(stage, text)
        record_ids = await stage.put(40, 0, 1)
        await run.until_read(200)
        await run.until(lambda: run.total("shoal_consumer_lag_records") == 0 and run.service.health.ready)
        await until_quiet(stage)
        assert run.total("shoal_transactions_total", outcome="aborted") == 0
    await stage.drained()
    assert record_ids


async def test_a_file_that_is_no_export_is_refused_and_not_quoted(stage: Stage) -> None:
    for text in (
        "",
        "{",
        "[]",
        '{"topic":"t","group":"g"}',
        '{"topic":"t","group":"g","partitions":[{"partition":0,"offset":"7","metadata":""}]}',
        '{"topic":"t","group":"g","partitions":[],"more":1}',
    ):
        assert await refused(stage, text) == "this is no file that 'shoal progress --export' wrote", text


async def test_an_export_of_another_topic_or_with_changed_numbers_is_refused(stage: Stage) -> None:
    await worked(stage)
    text = await stage.export()
    saved = json.loads(text)
    assert "another topic" in await refused(stage, json.dumps(saved | {"topic": "other"}))
    touched = json.loads(text)
    touched["partitions"][0]["offset"] += 1
    assert "the offset metadata is broken" in await refused(stage, json.dumps(touched))
    beyond = json.loads(text)
    beyond["partitions"][0]["partition"] = 7
    assert "the offset metadata is broken" in await refused(stage, json.dumps(beyond))
