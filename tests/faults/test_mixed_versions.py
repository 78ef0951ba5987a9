"""Workers of an older version and of this one in one group: each continues the progress of the other.

There is no release yet: the older version is a commit of this repository, so the test needs its history.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from support.faulty_workers import Worker
from support.reliability import ROOT
from support.running import SHOAL
from support.storms import WAVE, feed, storm

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200), pytest.mark.usefixtures("kernels")]

OLDER = "2f27bcebf6"
"""A commit whose offset metadata have the format of today. A release will take its place."""
COMPILE = """
import sys, shoal
from shoal.streams import precompile
from shoal.policy import Policy

precompile(Policy.load(sys.argv[1]))
print(shoal.__file__)
"""


@dataclass
class VersionWorker(Worker):
    """A worker that runs the code of a folder, if one is given."""

    source: Path | None = None

    def command(self, *extra: str, origin: bool = True) -> list[str]:
        """Run ``shoal`` itself: the worker of the tests is made for the code of today."""
        return [str(SHOAL), *super().command(*extra, origin=origin)[1:]]

    def environment(self, die_at: str, instance: str | None = None, patience_s: str = "300") -> dict[str, str]:
        environment = super().environment(die_at, instance, patience_s)
        return environment if self.source is None else environment | {"PYTHONPATH": str(self.source)}


def older_source(policy: Path) -> Path:
    """Return the folder build/older with the code of the older version, its kernels compiled."""
    folder = ROOT / "build" / "older" / OLDER
    source = folder / "service"
    if not source.is_dir():
        packed = subprocess.run(["git", "archive", OLDER, "service"], cwd=ROOT, capture_output=True, check=False)
        assert packed.returncode == 0, f"the history of the repository is needed: {packed.stderr.decode()}"
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    environment = os.environ | {"PYTHONPATH": str(source)}
    command = [sys.executable, "-c", COMPILE, str(policy)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(source / "shoal" / "__init__.py")
    return source


async def test_versions_are_rolled_out_and_back(tmp_path: Path) -> None:
    source = ROOT

    def make(plain: Worker) -> VersionWorker:
        nonlocal source
        source = older_source(plain.policy)
        return VersionWorker(plain.name, plain.policy, plain.bootstrap, plain.log, is_fresh=True, source=source)

    async with storm("rolling-versions", tmp_path, make=make) as one:
        await feed(one.producer, one.deployment)
        await one.until_progress(WAVE // 2)
        for to in (None, source):
            for worker in one.workers:
                assert isinstance(worker, VersionWorker)
                await one.under_load(partial(restart, worker, to))
        await one.settled("both workers were moved to this version and back, one by one; both continued")


async def restart(worker: VersionWorker, source: Path | None) -> None:
    """Stop a worker as an operator does, and start it with the code of another folder."""
    assert worker.terminate() == 0
    worker.source = source
    worker.start()
