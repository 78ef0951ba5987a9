"""What is tried again and for how long: pauses, a broker without an answer, and work in a thread."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition
from shoal.errors import BrokerError
from shoal.kafka import retries
from shoal.kafka.client import NotYetError, leader_away
from shoal.kafka.retries import BrokerLiveness, backoff_s
from shoal.observability import Health

pytestmark = pytest.mark.unit


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time (s) that the worker reads."""
    time_s = [1000.0]
    monkeypatch.setattr(retries, "time", SimpleNamespace(monotonic=lambda: time_s[0]))
    return time_s


@pytest.mark.parametrize(
    ("patience_s", "has_answered", "steps"),
    [
        # The process is stopped at first, as on a virtual machine that is paused.
        (300.0, True, [(600.0, False), (299.0, False), (1.0, True)]),
        (300.0, False, [(299.0, False), (1.0, True)]),
        (0.0, True, [(5.0, True)]),
    ],
    ids=["a process that was stopped", "a broker that never answered", "no patience"],
)
def test_a_broker_is_given_up_after_the_patience_without_an_answer(
    now: list[float], patience_s: float, steps: list[tuple[float, bool]], *, has_answered: bool
) -> None:
    liveness = BrokerLiveness(Health(), patience_s, _away_since_s=now[0])
    if has_answered:
        liveness.note_answer()
    for after_s, gives_up in steps:
        now[0] += after_s
        liveness.note_no_answer()
        assert liveness.is_exhausted == gives_up
    liveness.note_answer()
    assert liveness.away_s == 0


SECOND, THIRD = TopicPartition("in", 2), TopicPartition("in", 3)
AWAY = {SECOND: leader_away(SECOND)}
NOT_STARTED = AWAY | {THIRD: NotYetError("in-3: not begun", waited_s=30.0)}


def test_transactions_that_cannot_begin_are_waited_for_as_long_although_the_broker_answers(now: list[float]) -> None:
    liveness = BrokerLiveness(Health(), 300.0)

    def fail(after_s: float) -> None:
        now[0] += after_s
        liveness.note_answer()
        liveness.note_not_opened(NOT_STARTED, drains=False)

    fail(30.0)
    fail(239.0)
    liveness.note_opened()
    fail(500.0)
    fail(269.0)
    with pytest.raises(BrokerError, match=r"^in-3: not begun; giving up after 300 s \(kafka\.patience_s\)$") as caught:
        fail(1.0)
    assert not caught.value.retriable


def test_a_missing_leader_is_not_counted_as_a_transaction_that_cannot_begin(now: list[float]) -> None:
    liveness = BrokerLiveness(Health(), 300.0)
    for error, after_s in ((NOT_STARTED, 0.0), (AWAY, 10.0), (AWAY, 5_000.0), (NOT_STARTED, 100.0)):
        now[0] += after_s
        liveness.note_not_opened(error, drains=False)
    now[0] += 270.0
    with pytest.raises(BrokerError, match=r"^in-3: not begun; giving up after 300 s"):
        liveness.note_not_opened(NOT_STARTED, drains=False)


def test_a_drain_gives_up_when_a_partition_could_not_be_opened_for_its_patience(now: list[float]) -> None:
    liveness = BrokerLiveness(Health(), 300.0)
    for after_s in (0.0, 299.0):
        now[0] += after_s
        liveness.note_not_opened(AWAY, drains=True)
    liveness.note_opened()
    for after_s in (50.0, 299.0):
        now[0] += after_s
        liveness.note_not_opened(AWAY, drains=True)
    now[0] += 1.0
    liveness.note_not_opened(AWAY, drains=False)
    words = (
        "--drain: in-2: no leader answers; look whether its broker runs and can be reached; giving up after 300 s "
        "(kafka.patience_s)"
    )
    with pytest.raises(BrokerError) as caught:
        liveness.note_not_opened(AWAY, drains=True)
    assert (str(caught.value), caught.value.retriable, caught.value.exit_code) == (words, False, 3)


# ---------------------------------------------------------------- pauses


def test_pauses_grow_with_each_failure_up_to_a_limit_and_differ_between_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retries, "_random", lambda: 0.5)
    assert [backoff_s(failures) for failures in range(8)] == [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0]
    for drawn, pauses_s in ((0.0, [0.05, 0.1]), (0.8, [0.13, 0.26])):
        monkeypatch.setattr(retries, "_random", lambda drawn=drawn: drawn)
        assert [backoff_s(failures) for failures in range(2)] == pauses_s


# ---------------------------------------------------------------- a thread at the end of the process


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


@pytest.mark.parametrize(
    ("works_s", "waits_s", "option", "code", "words"),
    [
        (0.5, 30, "", 0, ["cancelled", "ended"]),
        (50, 0.1, "", 0, ["cancelled"]),
        (50, 0.1, "raises", 1, ["cancelled"]),
        (50, 0.1, "crashed", 1, ["cancelled"]),
    ],
)
def test_the_end_of_the_process_waits_for_stopped_work_for_a_time_and_keeps_the_exit_code(
    works_s: float, waits_s: float, option: str, code: int, words: list[str]
) -> None:
    command = [sys.executable, "-c", PROGRAM, str(works_s), str(waits_s), option]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=40)
    assert (done.returncode, done.stdout.split()) == (code, words)
