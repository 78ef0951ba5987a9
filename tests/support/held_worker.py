"""A worker that waits when it has found an output empty: `python held_worker.py run POLICY ...` as `shoal run POLICY`.

It waits until HOLD_COUNT such checks have ended, in all processes with the same HOLD_FOLDER. After that all of them
publish their first clusters at the same moment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from shoal.cli import main
from shoal.kafka import start, task_manager

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support.kafka_broker import wait_until


async def check_and_wait(producer: Any, settings: Any, partition: int) -> None:
    """Do the check, and wait for the others."""
    await start.check_output_is_empty(producer, settings, partition)
    folder = Path(os.environ["HOLD_FOLDER"])
    (folder / f"{os.getpid()}-{partition}").touch()
    count = int(os.environ["HOLD_COUNT"])
    await wait_until(lambda: len(os.listdir(folder)) >= count, 50, "the checks of the others")  # noqa: PTH208 - as short


if __name__ == "__main__":
    vars(task_manager)["check_output_is_empty"] = check_and_wait
    sys.exit(main())
