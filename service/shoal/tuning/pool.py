"""Measures settings, in this process or in several beside each other."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import NamedTuple, Self, TypeAlias, cast

from shoal.errors import AnonymityViolation, ConfigError, InputError
from shoal.kernels.cache import compiling_alone
from shoal.kernels.jit import with_compiled
from shoal.policy import Policy
from shoal.streams import precompile
from shoal.tuning.measuring import Figures, Sample, measure
from shoal.tuning.settings import Setting, Tuned

_COMPILE_FROM = 20_000
"""Records times settings from which compiled kernels pay."""


class Task(NamedTuple):
    """A setting to measure, as a stream or as one table."""

    setting: Setting
    is_table: bool


Outcome: TypeAlias = Figures | str
"""Figures, or why nothing could be released, without a value."""


@dataclass
class Bench:
    """Measures one setting after the other on a sample; ``most`` is the number of records that are read."""

    tuned: Tuned
    path: str
    file_format: str | None
    most: int
    is_compiled: bool = False
    _samples: dict[tuple[bool, bool], Sample] = field(default_factory=dict)
    _prepared: set[tuple[object, ...]] = field(default_factory=set)

    def sample(self, policy: Policy) -> Sample:
        """Return the sample as a policy decodes it: its limits of values say what is decoded of them."""
        kind = policy.protects_values, policy.t is not None
        if kind not in self._samples:
            self._samples[kind] = Sample.read(policy, self.path, self.file_format, self.most)
        return self._samples[kind]

    def run(self, task: Task) -> Outcome:
        """Measure one setting; GuaranteeError if a decision violates an invariant."""
        try:
            policy = self.tuned.changed(task.setting)
            sample = self.sample(policy)
            if not self.is_compiled:
                return measure(sample, policy, is_table=task.is_table)
            self._prepare(policy, is_table=task.is_table)
            with with_compiled():
                return measure(sample, policy, is_table=task.is_table)
        except (InputError, ConfigError, AnonymityViolation) as error:
            if isinstance(error, AnonymityViolation) and not task.is_table:
                raise
            return str(error)

    def _prepare(self, policy: Policy, *, is_table: bool) -> None:
        """Load the kernels of a policy. One process compiles them, and the others wait and find them in the cache."""
        stream = policy.stream
        kind = (is_table, stream and stream.rule, policy.protects_values, policy.t is not None)
        if kind not in self._prepared and not is_table:
            with compiling_alone("tune"), with_compiled():
                precompile(policy)
        self._prepared.add(kind)

    def compile_for(self, settings: int) -> None:
        """Use compiled kernels if so many settings take long."""
        self.is_compiled = settings * min(self.most, self.sample(self.tuned.policy).records) >= _COMPILE_FROM


class Workers:
    """Context with processes that measure settings; with one, this process does.

    Processes do not end by an interrupt of the terminal. When the context ends, they are ended at once.
    """

    def __init__(self, bench: Bench, count: int) -> None:
        self._bench, self._count = bench, count
        self._processes: dict[Connection, SpawnProcess] = {}

    def __enter__(self) -> Self:
        if self._count > 1:
            context = multiprocessing.get_context("spawn")
            plain = Bench(self._bench.tuned, self._bench.path, self._bench.file_format, self._bench.most)
            plain.is_compiled = self._bench.is_compiled
            with _ignoring_interrupts():
                for _ in range(self._count):
                    own, others = context.Pipe()
                    process = context.Process(target=_serve, args=(others, plain), daemon=True)
                    process.start()
                    others.close()
                    self._processes[own] = process
        return self

    def __exit__(self, *_: object) -> None:
        for connection, process in self._processes.items():
            process.kill()
            process.join()
            connection.close()

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Outcome]]:
        """Yield the place and the outcome of each task, as they are done; errors as of `Bench.run`."""
        if not self._processes:
            yield from ((place, self._bench.run(task)) for place, task in enumerate(tasks))
            return
        waiting = list(enumerate(tasks))[::-1]
        busy: dict[Connection, int] = {}
        idle = list(self._processes)
        while waiting or busy:
            while idle and waiting:
                place, task = waiting.pop()
                connection = idle.pop()
                connection.send(task)
                busy[connection] = place
            for ready in wait(list(busy)):
                own = cast("Connection", ready)
                yield busy.pop(own), _received(own)
                idle.append(own)


def _received(connection: Connection) -> Outcome:
    try:
        outcome: Outcome | Exception = connection.recv()
    except (EOFError, ConnectionError):
        raise InputError(
            "a worker process was ended from outside, perhaps for want of memory; give --workers 1, or fewer --rows"
        ) from None
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _serve(connection: Connection, bench: Bench) -> None:
    """Measure what arrives, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        try:
            connection.send(bench.run(task))
        except Exception as error:  # noqa: BLE001 - the parent raises it
            connection.send(error)


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Start processes that ignore interrupts from the beginning."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
