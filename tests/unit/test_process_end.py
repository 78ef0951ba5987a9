"""The end of a process while a thread compiles."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.unit

PROGRAM = """
import atexit
import sys
import threading
from shoal.process_end import end_process_if_compiling, register_compiling

atexit.register(print, "unloaded")
is_over = threading.Event()
thread = threading.Thread(target=is_over.wait, args=(50,), daemon=True)
register_compiling(thread)
end_process_if_compiling(4)
thread.start()
if "ended" in sys.argv:
    is_over.set()
    thread.join()
print("before", end="")
end_process_if_compiling(3)
print(" and after", end=" ")
"""


@pytest.mark.parametrize(("option", "code", "said"), [("", 3, "before"), ("ended", 0, "before and after unloaded\n")])
def test_a_process_ends_without_unloading_while_a_thread_compiles(option: str, code: int, said: str) -> None:
    began_s = time.monotonic()
    done = subprocess.run([sys.executable, "-c", PROGRAM, option], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, said, "")
    assert time.monotonic() - began_s < 40


WAITING_PROGRAM = """
import sys
import threading
import time
from shoal import process_end

process_end.EXIT_S = float(sys.argv[2])

def work():
    time.sleep(float(sys.argv[1]))
    print("ended", flush=True)

thread = threading.Thread(target=work, daemon=True)
thread.start()
process_end.wait_at_exit(thread, lambda: "crashed" in sys.argv)
print("left", flush=True)
if "raises" in sys.argv:
    raise RuntimeError
"""


@pytest.mark.parametrize(
    ("works_s", "waits_s", "option", "code", "said"),
    [
        (0.5, 30, "", 0, ["left", "ended"]),
        (50, 0.1, "", 0, ["left"]),
        (50, 0.1, "raises", 1, ["left"]),
        (50, 0.1, "crashed", 1, ["left"]),
    ],
)
def test_the_end_of_a_process_waits_for_a_thread_for_a_while(
    works_s: float, waits_s: float, option: str, code: int, said: list[str]
) -> None:
    command = [sys.executable, "-c", WAITING_PROGRAM, str(works_s), str(waits_s), option]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.split()) == (code, said)
