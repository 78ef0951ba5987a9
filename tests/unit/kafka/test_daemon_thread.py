"""Work in a thread at the end of the process."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.unit

PROGRAM = """
import asyncio
import sys
import threading
import time
from shoal.kafka import retries

retries.EXIT_S = float(sys.argv[2])

is_printed = threading.Event()

def work(stop):
    stop.wait()
    is_printed.wait()
    time.sleep(float(sys.argv[1]))
    print("ended", flush=True)

async def main():
    task = asyncio.create_task(retries.in_daemon_thread(work, lambda: "crashed" in sys.argv))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.wait({task})
    print("cancelled", flush=True)
    is_printed.set()
    if "raises" in sys.argv:
        raise RuntimeError

asyncio.run(main())
"""


def ended(works_s: float, waits_s: float, *options: str) -> tuple[int, list[str], float]:
    began = time.monotonic()
    command = [sys.executable, "-c", PROGRAM, str(works_s), str(waits_s), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout.split(), time.monotonic() - began


def test_the_end_of_the_process_waits_for_work_that_was_stopped() -> None:
    code, said, _ = ended(works_s=0.5, waits_s=30)
    assert (code, said) == (0, ["cancelled", "ended"])


def test_the_end_of_the_process_does_not_wait_for_ever() -> None:
    code, said, took_s = ended(works_s=50, waits_s=0.1)
    assert (code, said) == (0, ["cancelled"])
    assert took_s < 40


@pytest.mark.parametrize("option", ["raises", "crashed"])
def test_a_process_that_does_not_wait_any_longer_keeps_the_exit_code_of_an_error(option: str) -> None:
    code, said, _ = ended(50, 0.1, option)
    assert (code, said) == (1, ["cancelled"])
