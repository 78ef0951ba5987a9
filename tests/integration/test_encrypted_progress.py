"""Progress under a key on a real broker: lives, refusals, bringing a key in, changing it, taking it out."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from shoal.errors import InputError
from support.running import Stage

PREFIX = "shoal1:"
ENCRYPTED_PREFIX = "shoal1-aes:"

OLD, NEW = "7f" * 4 + bytes(range(28)).hex(), bytes(range(60, 92)).hex()


def take(stage: Stage) -> None:
    del stage.document["kafka"]["metadata_key_file"]


async def metadata(stage: Stage) -> str:
    found = await stage.committed()
    assert found is not None
    return str(found.metadata)


@pytest.mark.parametrize("where", ["KEY", "KEY_FILE"])
async def test_a_process_takes_its_key_from_the_environment_and_never_prints_it(stage: Stage, where: str) -> None:
    stage.give_keys(NEW)
    given = NEW if where == "KEY" else str(stage.document["kafka"]["metadata_key_file"])
    take(stage)
    record_ids = await stage.put(30)
    async with stage.process("--from", "earliest", **{f"METADATA_{where}": given}) as process:
        await process.until_ready()
        await stage.until_completed(record_ids[:5])
        pages = [(await process.get(path))[1] for path in ("/metrics", "/readyz", "/")]
        assert await process.terminated() == 0
    assert (await metadata(stage)).startswith(ENCRYPTED_PREFIX)
    assert NEW not in "".join([process.said, process.out.read_text(), *pages])
    assert "encrypted, and no key is given" in await stage.refusal()
    async with stage.command("check", name="check", **{f"METADATA_{where}": given}) as check:
        assert await check.ended() == 0
        assert NEW not in check.out.read_text()


async def test_without_the_right_key_encrypted_metadata_refuses_a_start(stage: Stage) -> None:
    stage.give_keys(NEW)
    record_ids = await stage.worked()
    for ways in ((OLD,), (OLD, "plain"), ("plain",)):
        stage.give_keys(*ways)
        words = await stage.refusal()
        assert f"{stage.topics['input']}-0: the offset metadata is encrypted" in words
        assert "kafka.metadata_key_file" in words
    stage.give_keys(OLD, NEW)
    await stage.drained(record_ids)


async def test_plain_metadata_with_a_key_refuses_a_start_until_plain_is_allowed(stage: Stage) -> None:
    record_ids = await stage.worked()
    stage.give_keys(NEW)
    words = await stage.refusal()
    assert "in plain, and a key is given" in words
    assert "'plain' after the key" in words
    stage.give_keys(NEW, "plain")
    await stage.drained(record_ids)
    assert (await metadata(stage)).startswith(ENCRYPTED_PREFIX)
    stage.give_keys(NEW)
    await stage.started()


async def test_a_key_is_added_rotated_and_removed_while_records_flow(stage: Stage) -> None:
    lists: Sequence[tuple[str, ...]] = (
        *((), ("plain", OLD), (OLD, "plain"), (OLD,), (OLD, NEW)),
        *((NEW, OLD), (NEW,), (NEW, "plain"), ("plain", NEW), ()),
    )
    record_ids, seen = [], []
    for ways in lists:
        if ways:
            stage.give_keys(*ways)
        else:
            stage.document["kafka"].pop("metadata_key_file", None)
        record_ids += await stage.worked()
        seen.append((await metadata(stage)).startswith(ENCRYPTED_PREFIX))
    await stage.drained(record_ids)
    assert seen == [bool(ways) and ways[0] != "plain" for ways in lists]
    assert (await metadata(stage)).startswith(PREFIX)


# ---------------------------------------------------------------- as operators see it


async def test_a_report_says_whether_metadata_can_be_read_and_which_key_encrypted_it(stage: Stage) -> None:
    stage.give_keys(OLD)
    await stage.worked()
    found = []
    for ways in ((OLD,), (NEW, OLD), (NEW,)):
        stage.give_keys(*ways)
        found += await stage.report()
    take(stage)
    found += await stage.report()
    assert [(line["state"], line["key"]) for line in found[:2]] == [("ok", "this"), ("ok", "another")]
    assert found[2]["state"] == "encrypted with a key that is not given"
    assert (found[3]["state"], found[3]["held"]) == ("encrypted, and no key is given", None)


async def test_an_export_stays_encrypted_and_is_imported_under_the_current_key(stage: Stage) -> None:
    stage.give_keys(OLD)
    record_ids = await stage.worked()
    before = await stage.progress()
    text = await stage.export()
    (saved,) = json.loads(text)["partitions"]
    assert saved["metadata"] == await metadata(stage)
    take(stage)
    assert await stage.export() == text, "an export needs no key"
    with pytest.raises(InputError, match="encrypted, and no key is given"):
        await stage.bring_back(text)
    # The group is lost, and with it the old key is laid aside.
    stage.document["kafka"]["group"] += "-again"
    stage.give_keys(NEW, OLD)
    assert await stage.bring_back(text) == {stage.topics["input"]: [0]}
    stage.give_keys(NEW)
    assert await stage.progress() == before
    await stage.drained(record_ids)


async def test_an_import_over_metadata_of_an_unknown_key_is_refused(stage: Stage) -> None:
    record_ids = await stage.worked()
    text = await stage.export()
    stage.give_keys(NEW, "plain")
    record_ids += await stage.worked()
    before = await stage.committed()
    for ways in (("plain",), ("plain", OLD), (OLD, "plain")):
        stage.give_keys(*ways)
        with pytest.raises(InputError, match="encrypted"):
            await stage.bring_back(text)
        assert await stage.committed() == before
    stage.give_keys(NEW)
    await stage.drained(record_ids)


async def test_a_partition_without_new_records_gets_the_new_key_at_the_next_start(stage: Stage) -> None:
    stage.give_keys(OLD)
    record_ids = await stage.worked()
    stage.give_keys(NEW, OLD)
    before = await stage.progress()
    async with stage.run() as run:
        await run.until_ready()
    assert (await stage.progress()).state == before.state
    stage.give_keys(NEW)
    await stage.drained()
    await stage.until_completed(record_ids)
