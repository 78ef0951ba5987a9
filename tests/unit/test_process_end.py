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
