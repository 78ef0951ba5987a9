"""Second releases of the same records: each way to one is refused, or releases nothing twice, on a real broker.

Whoever holds two clusters of one person intersects them, so every scenario is judged from outside, by the confidential
serial number that each record carries into whatever leaves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from shoal.errors import InputError
from shoal.kafka import StartOptions
from support.attack_results import measured
from support.by_night import at_night
from support.kafka_broker import create_topic, produce, read_all
from support.raw_log import delete_group
from support.running import Stage

EARLIEST, LATEST = StartOptions(reset="earliest"), StartOptions(reset="latest")
STARTS = [EARLIEST, LATEST, StartOptions(reset="earliest", drain=True), StartOptions()]


async def released_twice(stage: Stage) -> int:
    """How many serial numbers stand in the output more than once."""
    return sum(count > 1 for count in (await stage.serials()).values())


async def tries(stage: Stage) -> int:
    """Start in every way there is and let all of it go as far as it goes; return how many of them were refused."""
    refused = 0
    for start in STARTS:
        try:
            async with stage.run(start) as run:
                if start.drain:
                    await run.ended()
                else:
                    await run.until_ready()
        except InputError:
            refused += 1
    return refused


def enter(scenario: str, twice: int, released: int) -> None:
    measured(
        "R10",
        f"records released twice: {scenario}",
        knows="both releases",
        success=twice / released,
        bound=0.0,
        source="a start refuses, or goes on where the last one was",
    )


# ---------------------------------------------------------------- progress that is lost, set back, or of somebody else


async def expired(stage: Stage) -> None:
    await delete_group(stage.bootstrap, stage.group)


async def second_group(stage: Stage) -> None:
    stage.document["kafka"]["group"] += "-second"


async def reset_to_the_beginning(stage: Stage) -> None:
    await stage.commit(0, "")


async def reset_with_its_metadata(stage: Stage) -> None:
    found = await stage.committed()
    assert found is not None
    await stage.commit(0, str(found.metadata))


async def changed_group_and_policy(stage: Stage) -> None:
    stage.document["kafka"]["group"] += "-second"
    stage.document["privacy"] = {"k": 4}


LOST: dict[str, Callable[[Stage], Awaitable[None]]] = {
    "the group's offsets expire": expired,
    "a second group on the same input and output": second_group,
    "a second group with another policy": changed_group_and_policy,
    "another tool sets the offset back": reset_to_the_beginning,
    "another tool sets the offset back and keeps its metadata": reset_with_its_metadata,
}


@pytest.mark.parametrize("scenario", LOST)
async def test_a_start_without_its_own_metadata_is_refused_and_releases_nothing(stage: Stage, scenario: str) -> None:
    await stage.worked(60)
    before = await stage.read()
    await LOST[scenario](stage)
    await stage.put(40)
    assert await tries(stage) == len(STARTS)
    assert await stage.read() == before
    # The suggested remedy continues at the end, and earlier output is not changed.
    async with stage.run(StartOptions(skip_to_end=True)) as run:
        await run.until_ready()
        late = await stage.put(40)
        await run.until_read(40)
    await stage.drained(late)
    enter(scenario, await released_twice(stage), len(await stage.read()))


@pytest.mark.parametrize("variant", ["in plain", "under a key", "dated by the broker"])
async def test_a_restored_older_commit_is_refused_and_releases_nothing(stage: Stage, variant: str) -> None:
    if variant == "under a key":
        stage.give_keys(bytes(range(32)).hex())
    elif variant == "dated by the broker":
        # Rows of a commit are dated after it then, so that their time shows nothing within the transaction timeout.
        await stage.renew("output", 1, {"message.timestamp.type": "LogAppendTime"})
    await stage.worked(60)
    old = await stage.committed()
    saved = await stage.export()
    await stage.worked(60)
    last = await stage.committed()
    assert old is not None
    assert last is not None
    assert old.offset < last.offset
    before = await stage.read()
    # What was committed then is genuine in every byte: only the output tells that it is not the last one.
    await stage.commit(old.offset, str(old.metadata))
    assert await tries(stage) == len(STARTS)
    assert await stage.read() == before
    with pytest.raises(InputError, match="published after the export"):
        await stage.bring_back(saved)
    await stage.commit(last.offset, str(last.metadata))
    await stage.drained()
    enter(f"an older commit is put back, {variant}", await released_twice(stage), 120)
    assert len(await stage.read()) == 120


# ---------------------------------------------------------------- other parameters


CHANGES: dict[str, dict[str, Any]] = {
    "k": {"privacy": {"k": 5}},
    "delta": {"stream": {"delta": 35}},
    "a smaller delta": {"stream": {"delta": 8}},
    "the position's weight": {"steering": {"position": 0.05}},
    "max_share": {"privacy": {"max_share": 1.0}},
    "max_delay_s": {"stream": {"max_delay_s": 5}},
    "the rule, block": {"stream": {"rule": "block"}},
    "the rule, awo": {"stream": {"rule": "awo"}},
    "all of them": {"privacy": {"k": 4}, "stream": {"delta": 15}, "steering": {"position": 0.02}},
}

CHANGES_BY_DAY = ["a smaller delta", "the rule, block", "all of them"]


@pytest.mark.parametrize("change", [*CHANGES_BY_DAY, *at_night(*sorted(CHANGES.keys() - CHANGES_BY_DAY))])
async def test_changed_parameters_continue_from_the_committed_offset_and_release_no_record_twice(
    stage: Stage, change: str
) -> None:
    original = {name: dict(stage.document.get(name, {})) for name in ("privacy", "stream", "steering")}
    await stage.worked(60)
    # There and back again: neither parameter set takes back what the other one has released.
    for sections in (CHANGES[change], {}, CHANGES[change]):
        for name, section in original.items():
            stage.document[name] = section | sections.get(name, {})
        await stage.worked(60)
    await stage.drained()
    count = stage.serial
    await stage.until_completed([(0, offset) for offset in range(count)])
    enter(f"changed parameters, {change}", await released_twice(stage), count)


# ---------------------------------------------------------------- other deployments


async def test_a_second_deployment_over_a_copy_of_the_records_is_refused_at_the_same_output(stage: Stage) -> None:
    await stage.worked(60)
    before = await stage.read()
    copy = await create_topic(stage.bootstrap)
    records = await read_all(stage.bootstrap, stage.topics["input"])
    await produce(stage.bootstrap, copy, [message.value for message in records], partitions=0)
    stage.document["kafka"] |= {"input": copy, "group": stage.group + "-batch"}
    assert await tries(stage) == len(STARTS)
    assert await stage.read() == before
    enter("a second deployment over a copy of the input", await released_twice(stage), len(before))


@pytest.mark.parametrize(
    "start", [LATEST, StartOptions(skip_to_end=True), *at_night(EARLIEST, StartOptions(reset="latest", drain=True))]
)
async def test_a_start_that_asks_for_another_beginning_goes_on_where_the_last_one_was(
    stage: Stage, start: StartOptions
) -> None:
    await stage.worked(60)
    for _ in range(3):
        await stage.put(20)
        async with stage.run(start) as run:
            await (run.ended() if start.drain else run.until_read(20))
    await stage.drained([(0, offset) for offset in range(stage.serial)])
    enter("a start that asks for another beginning", await released_twice(stage), stage.serial)
