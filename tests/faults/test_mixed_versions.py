"""Workers of an older version and of this one in one group: each continues the progress of the other.

There is no release yet: the older version is a commit of this repository, so the test needs its history.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from support.faulty_workers import Worker
from support.reliability import ROOT
from support.storms import WAVE, feed, storm

pytestmark = [
    pytest.mark.faults,
    pytest.mark.nightly,
    pytest.mark.timeout(1200),
    pytest.mark.usefixtures("kernels"),
]

OLDER = "c21ececa54"
"""A commit whose offset metadata have the format of today. A release will take its place."""


@dataclass
class VersionWorker(Worker):
    """A worker that runs the code of a folder, if one is given."""

    source: Path | None = None

    def environment(self, die_at: str, instance: str | None = None, patience_s: str = "300") -> dict[str, str]:
        environment = super().environment(die_at, instance, patience_s)
        return environment if self.source is None else environment | {"PYTHONPATH": str(self.source)}


def older_source(folder: Path) -> Path:
    """Write the code of the older version into a folder, and see that an interpreter takes it from there."""
    packed = subprocess.run(["git", "archive", OLDER, "service"], cwd=ROOT, capture_output=True, check=False)
    assert packed.returncode == 0, f"the history of the repository is needed: {packed.stderr.decode()}"
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    source = folder / "service"
    command = [sys.executable, "-c", "import shoal; print(shoal.__file__)"]
    found = subprocess.run(command, env={"PYTHONPATH": str(source)}, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(source / "shoal" / "__init__.py")
    return source


async def test_versions_are_rolled_out_and_back(tmp_path: Path) -> None:
    source = older_source(tmp_path)

    def make(plain: Worker) -> VersionWorker:
        return VersionWorker(plain.name, plain.policy, plain.bootstrap, plain.log, is_fresh=True, source=source)

    async with storm("rolling-versions", tmp_path, make=make) as one:
        # The kernels of the older version are compiled first.
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
