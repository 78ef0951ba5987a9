"""What stops a worker is named in log and readiness: no file descriptor, and another worker of its instance id."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

from structlog.testing import capture_logs
from support.running import EARLIEST, Stage


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let this process open no file and no connection."""
    limits, taken = resource.getrlimit(resource.RLIMIT_NOFILE), list[int]()
    resource.setrlimit(resource.RLIMIT_NOFILE, (os.dup(0) + 50, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for one in taken:
            os.close(one)


async def test_a_lack_of_file_descriptors_is_named_and_the_worker_goes_on_when_there_are_some(stage: Stage) -> None:
    with capture_logs() as lines:
        run = stage.run(EARLIEST)
        with no_descriptor_left():
            await run.__aenter__()
            await run.until(lambda: "no file descriptor is left" in run.service.health.status, "the cause")
        await run.until_ready()
        await run.__aexit__()
    ended = [line for line in lines if line["event"] == "consumer loop ended"]
    assert {line["code"] for line in ended} == {"descriptors"}
    assert "raise the limit of open files, which is " in ended[0]["reason"]


async def test_two_workers_with_one_instance_id_are_named(stage: Stage) -> None:
    with capture_logs() as lines:
        async with stage.run(EARLIEST, instance_id="one") as first, stage.run(EARLIEST, instance_id="one") as second:
            runs = [first.service.health, second.service.health]
            await first.until(lambda: any("kafka.instance_id" in one.status for one in runs), "the cause")
    assert "another worker has the same kafka.instance_id: give each its own" in [line["event"] for line in lines]
