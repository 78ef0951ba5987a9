"""Progress under a key on a real broker: lives, refusals, bringing a key in, changing it, taking it out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from shoal.errors import InputError, PolicyError
from shoal.kafka import StartOptions, export_progress, import_progress, report_progress
from shoal.policy import KafkaSection, Policy
from support.kafka_broker import wait_until
from support.running import EARLIEST, Stage

pytestmark = pytest.mark.integration

PREFIX = "shoal1:"
ENCRYPTED_PREFIX = "shoal1-aes:"

OLD, NEW = "7f" * 4 + bytes(range(28)).hex(), bytes(range(60, 92)).hex()


def give(stage: Stage, *ways: str) -> None:
    """Give the stage's processes a file with these ways of writing, the first of which writes."""
    path = stage.folder / "metadata.key"
    path.write_text("\n".join(ways))
    path.chmod(0o600)
    stage.document["kafka"]["metadata_key_file"] = str(path)


def take(stage: Stage) -> None:
    del stage.document["kafka"]["metadata_key_file"]


@pytest.fixture
async def stage(bootstrap: str, tmp_path: Path) -> Stage:
    return await Stage.create(bootstrap, tmp_path)


async def metadata(stage: Stage) -> str:
    found = await stage.committed()
    assert found is not None
    return str(found.metadata)


async def work(stage: Stage, count: int = 30) -> list[tuple[int, int]]:
    """Put records in, release some of them and hold the others."""
    places = await stage.put(count)
    before = len(await stage.read())
    async with stage.run() as run:
        await run.until_read(count)

        async def is_published() -> bool:
            return len(await stage.read()) > before

        await wait_until(is_published, what="a release")
    return places


async def refusal(stage: Stage, start: StartOptions = EARLIEST) -> str:
    before = await stage.committed()
    with pytest.raises((InputError, PolicyError)) as caught:
        async with stage.run(start) as run:
            await run.ended()
    assert caught.value.exit_code == 2
    assert await stage.committed() == before, "a refused start left a mark"
    for key in (OLD, NEW):
        assert key not in str(caught.value)
    return str(caught.value)


async def test_under_a_key_a_worker_goes_on_where_the_last_one_was_and_nothing_is_ever_in_plain(stage: Stage) -> None:
    give(stage, NEW)
    places: list[tuple[int, int]] = []
    for _ in range(4):
        places += await work(stage)
        assert (await metadata(stage)).startswith(ENCRYPTED_PREFIX)
        assert (await stage.progress()).state.incomplete
    await stage.drained()
    await stage.until_resolved(places)
    assert (await metadata(stage)).startswith(ENCRYPTED_PREFIX)


@pytest.mark.parametrize("where", ["KEY", "KEY_FILE"])
async def test_a_process_takes_its_key_from_the_environment_and_tells_it_to_nobody(stage: Stage, where: str) -> None:
    give(stage, NEW)
    given = NEW if where == "KEY" else str(stage.document["kafka"]["metadata_key_file"])
    take(stage)
    places = await stage.put(30)
    async with stage.process("--from", "earliest", **{f"METADATA_{where}": given}) as process:
        await process.until_ready()
        await stage.until_resolved(places[:5])
        pages = [(await process.get(path))[1] for path in ("/metrics", "/readyz", "/")]
        assert await process.terminated() == 0
    assert (await metadata(stage)).startswith(ENCRYPTED_PREFIX)
    assert NEW not in "".join([process.said, process.out.read_text(), *pages])
    assert "encrypted, and no key is given" in await refusal(stage)
    async with stage.command("check", name="check", **{f"METADATA_{where}": given}) as check:
        assert await check.ended() == 0
        assert NEW not in check.out.read_text()


async def test_without_its_key_or_with_another_one_encrypted_progress_stops_the_start(stage: Stage) -> None:
    give(stage, NEW)
    places = await work(stage)
    for ways in ((OLD,), (OLD, "plain"), ("plain",)):
        give(stage, *ways)
        words = await refusal(stage)
        assert f"{stage.topics['input']}-0: the offset metadata is encrypted" in words
        assert "kafka.metadata_key_file" in words
    give(stage, OLD, NEW)
    await stage.drained()
    await stage.until_resolved(places)


async def test_progress_in_plain_where_a_key_is_given_stops_the_start_until_plain_is_allowed(stage: Stage) -> None:
    places = await work(stage)
    give(stage, NEW)
    words = await refusal(stage)
    assert "in plain, and a key is given" in words
    assert "'plain' after the key" in words
    give(stage, NEW, "plain")
    await stage.drained()
    await stage.until_resolved(places)
    assert (await metadata(stage)).startswith(ENCRYPTED_PREFIX)
    give(stage, NEW)
    async with stage.run() as run:
        await run.until_ready()


@pytest.mark.parametrize("bent", ["a bit", "the end", "the offset", "another partition", "another group"])
async def test_tampered_or_foreign_progress_stops_the_start_and_can_be_skipped(
    bootstrap: str, tmp_path: Path, bent: str
) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=2)
    give(stage, NEW)
    await stage.put(30)
    await stage.put(40, 1)
    async with stage.run() as run:
        await run.until_read(70)

        async def are_committed() -> bool:
            return (await stage.progress(0)).state.committed_offset > 0 and (
                await stage.progress(1)
            ).state.committed_offset > 0

        await wait_until(are_committed, what="progress of both partitions")
    found = await stage.committed()
    assert found is not None
    offset, text = found.offset, str(found.metadata)
    if bent == "a bit":
        text = text[:80] + ("A" if text[80] != "A" else "B") + text[81:]
    elif bent == "the end":
        text = text[:-8]
    elif bent == "the offset":
        offset -= 1
    elif bent == "another partition":
        other = await stage.committed(1)
        assert other is not None
        offset, text = other.offset, str(other.metadata)
    else:
        stage.document["kafka"]["group"] += "-other"
    await stage.commit(offset, text)
    words = await refusal(stage)
    assert "the offset metadata is broken" in words
    assert "--import" in words
    before = [message for message in await stage.read() if message.partition == 0]
    async with stage.run(StartOptions(skip_to_end=True)) as run:
        await run.until_ready()
    assert [message for message in await stage.read() if message.partition == 0] == before


async def test_a_key_comes_is_changed_and_goes_while_records_flow(stage: Stage) -> None:
    lists: Sequence[tuple[str, ...]] = (
        (),
        ("plain", OLD),
        (OLD, "plain"),
        (OLD,),
        (OLD, NEW),
        (NEW, OLD),
        (NEW,),
        (NEW, "plain"),
        ("plain", NEW),
        (),
    )
    places, seen = [], []
    for ways in lists:
        if ways:
            give(stage, *ways)
        elif "metadata_key_file" in stage.document["kafka"]:
            take(stage)
        places += await work(stage)
        seen.append((await metadata(stage)).startswith(ENCRYPTED_PREFIX))
    await stage.drained()
    await stage.until_resolved(places)
    assert seen == [bool(ways) and ways[0] != "plain" for ways in lists]
    assert (await metadata(stage)).startswith(PREFIX)


# ---------------------------------------------------------------- as operators see it


async def report(stage: Stage) -> list[dict[str, object]]:
    return await report_progress(Policy.load(stage.policy_file()), stage.settings())


async def test_a_report_tells_whether_progress_can_be_read_and_by_which_key_it_is_written(stage: Stage) -> None:
    give(stage, OLD)
    await work(stage)
    (told,) = await report(stage)
    assert (told["state"], told["key"]) == ("ok", "this")
    give(stage, NEW, OLD)
    (told,) = await report(stage)
    assert (told["state"], told["key"]) == ("ok", "another")
    give(stage, NEW)
    (told,) = await report(stage)
    assert told["state"] == "encrypted with a key that is not given"
    take(stage)
    (told,) = await report(stage)
    assert told["state"] == "encrypted, and no key is given"
    assert told["held"] is None


async def test_an_export_stays_encrypted_and_comes_back_under_the_key_of_the_day(stage: Stage) -> None:
    give(stage, OLD)
    places = await work(stage)
    before = await stage.progress()
    text = await export_progress(stage.settings())
    (saved,) = json.loads(text)["partitions"]
    assert saved["metadata"] == await metadata(stage)
    take(stage)
    assert await export_progress(stage.settings()) == text, "an export needs no key"
    with pytest.raises(InputError, match="encrypted, and no key is given"):
        await import_progress(text, *parts(stage))
    # The group is lost, and with it the old key is laid aside.
    stage.document["kafka"]["group"] += "-again"
    give(stage, NEW, OLD)
    assert await import_progress(text, *parts(stage)) == [0]
    give(stage, NEW)
    assert await stage.progress() == before
    await stage.drained()
    await stage.until_resolved(places)


async def test_an_import_is_refused_over_progress_that_cannot_be_read_for_want_of_a_key(stage: Stage) -> None:
    places = await work(stage)
    text = await export_progress(stage.settings())
    give(stage, NEW, "plain")
    places += await work(stage)
    before = await stage.committed()
    for ways in (("plain",), ("plain", OLD), (OLD, "plain")):
        give(stage, *ways)
        with pytest.raises(InputError, match="encrypted"):
            await import_progress(text, *parts(stage))
        assert await stage.committed() == before
    give(stage, NEW)
    await stage.drained()
    await stage.until_resolved(places)


def parts(stage: Stage) -> tuple[Policy, KafkaSection]:
    return Policy.load(stage.policy_file()), stage.settings()
