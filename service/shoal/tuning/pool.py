"""Measures settings, in this process or in several beside each other."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import NamedTuple, Self, TypeAlias, cast

from shoal.errors import AnonymityViolation, GuaranteeError, InputError, PolicyError, ShoalError
from shoal.kernels.cache import compiling_alone, mark_compiled, was_compiled
from shoal.kernels.jit import is_compiled, is_final, with_compiled
from shoal.observability import logger, raise_location, set_up_logs
from shoal.policy import Policy
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
    samples: dict[tuple[bool, bool], Sample] = field(default_factory=dict)

    def sample(self, policy: Policy) -> Sample:
        """Return the sample as a policy decodes it: its limits of values say what is decoded of them."""
        kind = policy.protects_values, policy.t is not None
        if kind not in self.samples:
            self.samples[kind] = Sample.read(policy, self.path, self.file_format, self.most)
        return self.samples[kind]

    def run(self, task: Task) -> Outcome:
        """Measure one setting; GuaranteeError if a decision violates an invariant."""
        try:
            policy = self.tuned.changed(task.setting)
            sample = self.sample(policy)
            if not self.is_compiled:
                return measure(sample, policy, is_table=task.is_table)
            name = _kernels_of(policy, is_table=task.is_table)
            with with_compiled(), nullcontext() if was_compiled(name) else compiling_alone("tune"):
                figures = measure(sample, policy, is_table=task.is_table)
            mark_compiled(name)
        except PolicyError as error:
            return "; ".join(map(str, error.faults))
        except ShoalError as error:
            # A table as a whole can violate l or t; a cluster that is decided never violates anything.
            is_of_table = task.is_table and isinstance(error, AnonymityViolation)
            if isinstance(error, GuaranteeError) and not is_of_table:
                raise
            return str(error)
        return figures

    def compile_for(self, settings: int) -> None:
        """Use compiled kernels if the cache has them, or so many settings take long; then the first ones wait."""
        policy = self.tuned.policy
        if is_final() and not is_compiled():
            return
        has_kernels = was_compiled(_kernels_of(policy, is_table=policy.stream is None))
        self.is_compiled = has_kernels or settings * self.sample(policy).records >= _COMPILE_FROM
        if self.is_compiled and not has_kernels:
            logger("tune").info("kernels are compiled, once: the first settings take a minute or two longer")


def _kernels_of(policy: Policy, *, is_table: bool) -> str:
    """Return a name of the kernels that a policy needs, for the cache: one process compiles them, the others wait."""
    if is_table or policy.stream is None:
        return "tune-table"
    return f"tune-{policy.stream.rule}-{policy.protects_values:d}{policy.t is not None:d}"


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
            plain = replace(self._bench, samples={})
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
        outcome: Outcome | ShoalError = connection.recv()
    except (EOFError, ConnectionError):
        raise InputError(
            "a worker process was ended from outside, perhaps for want of memory; give --workers 1, or fewer --rows"
        ) from None
    if isinstance(outcome, ShoalError):
        raise outcome
    return outcome


def _serve(connection: Connection, bench: Bench) -> None:
    """Measure what arrives, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_up_logs("text", "error")  # the parent reads the same records, and warns of them
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        try:
            connection.send(bench.run(task))
        except ShoalError as error:
            connection.send(error)
        except Exception as error:  # noqa: BLE001 - the text of an unknown error could hold attribute values
            connection.send(ShoalError(f"unexpected {raise_location(error)}"))


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Start processes that ignore interrupts from the beginning."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
