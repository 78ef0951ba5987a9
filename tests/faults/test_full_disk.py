"""The disk of a broker is full: the broker ends, the others take over, and it comes back when there is space."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.kafka_broker import wait_until
from support.storms import PATIENCE_S, storm

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900), pytest.mark.usefixtures("kernels")]

NODE, SIZE = 2, "96m"
CHUNK = bytes(1 << 20)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Put the data of a broker, which does not run yet, on a file system of its own."""
    copied = folder.with_name("copied")
    shutil.copytree(folder, copied)
    _run("mount", "-t", "tmpfs", "-o", f"size={SIZE},uid={os.getuid()}", "tmpfs", str(folder))
    try:
        shutil.copytree(copied, folder, dirs_exist_ok=True)
        yield
    finally:
        _run("umount", "--lazy", str(folder))


def _run(*command: str) -> None:
    asked = command if os.geteuid() == 0 else ("sudo", "-n", *command)
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr.strip()}\nthis test mounts a small file system: run it as root"


def fill(folder: Path) -> Path:
    """Fill a file system with one file."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(CHUNK):
                pass
        except OSError:
            return path
    raise AssertionError


async def test_the_disk_of_a_broker_is_full(tmp_path: Path) -> None:
    with ExitStack() as stack:

        def change(folders: Sequence[Path]) -> None:
            stack.enter_context(small_disk(folders[NODE - 1] / "data"))

        async with storm("disk-full", tmp_path, change=change) as one:
            data = one.brokers.folder(NODE) / "data"

            async def strike() -> None:
                filler = await asyncio.to_thread(fill, data)
                await wait_until(lambda: one.brokers.is_gone(NODE), PATIENCE_S, "the end of the broker")
                before = await one.deployment.resolved()
                await one.deployment.wait_for(before + 1, PATIENCE_S)
                filler.unlink()
                await one.brokers.start(NODE)

            assert await one.brokers.leads(NODE, one.deployment.topics["output"])
            await one.under_load(strike)
            await one.brokers.until_in_sync(*one.deployment.topics.values())
            await one.settled("the broker ended, the workers continued with the two others")
