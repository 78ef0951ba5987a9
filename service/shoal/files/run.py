"""One run of a command: long work in a thread, its progress on a terminal, and what it did with the records.

Losses are told with two significant digits: more could reveal a value by a difference. Names of attributes and numbers
of categories are shown, and no value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread, Timer
from typing import Any, BinaryIO, NoReturn, Self, TypeVar

import structlog
from tqdm import tqdm

from shoal.files.files import PIPE
from shoal.formats import DropReason, RefusalCounter
from shoal.policy import Attribute, Policy
from shoal.process_end import end_process
from shoal.scales import SCALES
from shoal.scales.loss import MOST_CATEGORIES, mean_loss

T = TypeVar("T")
_INTERRUPTED = 130
REFRESH_S = 0.5
_SLOW_S = 10.0
"""Time after which a command that prints nothing meanwhile logs that it is at work."""
_NEEDS_REASON, _NEEDS_CHANGE = 0.5, 0.8
"""Above these losses, the last line gives a reason, and `shoal check` says what would keep more."""


class BackgroundRunner:
    """Context in which kernels are compiled or run in a thread while the main thread waits.

    Python handles no signal during a kernel, and the compiler turns its exception into another error. If a signal
    ends the command meanwhile, the contexts opened within this one are closed, so that incomplete files are
    removed. Then the process ends at once, with the exit code of the signal.
    """

    def __init__(self) -> None:
        self._work: Future[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def run(self, work: Callable[[], T]) -> T:
        """Return the result of ``work``, or raise its exception."""
        executor = ThreadPoolExecutor(1, thread_name_prefix="kernels")
        future = executor.submit(work)
        self._work = future
        executor.shutdown(wait=False)
        return future.result()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if kind is None or self._work is None or self._work.done():
            return
        code = error.code if isinstance(error, SystemExit) else _INTERRUPTED
        end_process(code if isinstance(code, int) else _INTERRUPTED)


@dataclass(frozen=True, slots=True)
class RunReport:
    """Numbers of records of one run, and its loss."""

    records_in: int
    released: int
    suppressed: int
    loss: LossReport
    refusals: RefusalCounter = field(default_factory=RefusalCounter)
    information_loss: float | None = None
    """Of numbers and times, in percent; None if nothing was released."""
    unknown: Mapping[str, int] = field(default_factory=dict)
    """Values of valid records that the taxonomy of their attribute lacks, by attribute."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was released of an input that has records."""
        return self.records_in > 0 and self.released == 0


@dataclass(frozen=True, slots=True)
class LossReport:
    """The loss of a release under a policy: of each quasi-identifier in its own measure, None if it has none.

    ``categories`` are numbers of categories of the released records, ``clocks`` are times of which a trend was removed.
    """

    policy: Policy
    losses: Mapping[str, float | None]
    categories: Mapping[str, int]
    clocks: Collection[str] = ()
    is_table: bool = False

    @property
    def mean(self) -> float | None:
        """Mean of the losses; None if no attribute has one."""
        return mean_loss(self.losses)

    @property
    def worst(self) -> list[tuple[Attribute, float]]:
        """Attributes that have a loss, the largest first."""
        found = [(one, loss) for one in self.policy.quasi_identifiers if (loss := self.losses[one.name]) is not None]
        return sorted(found, key=lambda pair: -pair[1])

    def summary(self) -> str:
        """Return the mean and the worst attribute with the reason; an empty text if no attribute has a loss."""
        if self.mean is None:
            return ""
        attribute, loss = self.worst[0]
        text = f"mean loss {percent(self.mean)}"
        if loss == 0:
            return text
        text += f"; worst {attribute.name} {percent(loss)}"
        if loss <= _NEEDS_REASON:
            return text
        if attribute.is_nominal and self._are_many(attribute):
            limit = f"k {self.policy.k}" if self.is_table else f"delta {self.policy.require_stream().delta}"
            return f"{text}: {self._values_of(attribute)}, {limit} keeps few (docs/numbers.md)"
        # Nothing is left of a clock whose published step is wider than a window.
        key = "resolution" if loss >= 1 and SCALES[attribute.scale].has_trend else "weight"
        return f"{text}: see {key} in docs/policy.md"

    def lines(self) -> list[str]:
        """Return the mean, each attribute, the worst first, and what would keep more of those that lose most."""
        if self.mean is None:
            return ["mean loss: none, because no attribute has one"]
        found = [f"mean loss {percent(self.mean)}"]
        for attribute, loss in self.worst:
            note = " of what is left after its trend" if attribute.name in self.clocks else ""
            found.append(f"{attribute.name} {percent(loss)}{note}")
        found += [
            f"{name}: no loss, because its values do not vary" for name, loss in self.losses.items() if loss is None
        ]
        return found + [self._advice_on(attribute) for attribute, loss in self.worst if loss > _NEEDS_CHANGE]

    def _are_many(self, attribute: Attribute) -> bool:
        """Return whether clusters of k records each would need more categories than are held, if they were pure."""
        count = self.categories.get(attribute.name, 0)
        return self.is_table or count * self.policy.k > self.policy.require_stream().delta + 1

    def _values_of(self, attribute: Attribute) -> str:
        count = self.categories.get(attribute.name, 0)
        if count > MOST_CATEGORIES:
            return f"over {MOST_CATEGORIES} values"
        return f"{count} value{'' if count == 1 else 's'}"

    def _advice_on(self, attribute: Attribute) -> str:
        """Return that the policy cannot keep an attribute, and what would help."""
        limits = f"k {self.policy.k}"
        changes = ["a smaller k", "a larger weight"]
        if not self.is_table:
            limits = f"delta {self.policy.require_stream().delta} and {limits}"
            changes.insert(0, "a larger delta")
        if SCALES[attribute.scale].has_trend:
            changes.append("a finer resolution")
        if attribute.is_nominal and attribute.taxonomy is None:
            changes.append("a taxonomy")
        kept = f"its {self._values_of(attribute)}" if attribute.is_nominal else "it"
        reason = f"{limits} cannot keep {kept}"
        if attribute.is_nominal and not self._are_many(attribute):
            reason = f"{limits} could keep {kept}, but the other attributes outweigh it"
        return f"{attribute.name}: {reason}; what helps: {', '.join(changes)}, or leave it out"


@contextmanager
def elapsed_time(label: str) -> Iterator[tqdm[NoReturn]]:
    """Show the elapsed time of work of unknown length. A thread draws it, since kernels release the interpreter."""
    with progress_bar(desc=label, bar_format="{desc}: {elapsed}") as bar:
        is_over = Event()

        def refresh() -> None:
            while not is_over.wait(REFRESH_S):
                bar.refresh()

        thread = Thread(target=refresh, name=f"{label}-bar", daemon=True)
        if not bar.disable:
            thread.start()
        try:
            yield bar
        finally:
            is_over.set()
            if thread.is_alive():
                thread.join()


@contextmanager
def reading_bar(path: str, unit: str, file: BinaryIO | None) -> Iterator[Callable[[int], None]]:
    """Show how much was read: the share of a file's bytes, else records; yield what takes the count of a block."""
    known = file if unit == "line" and path != PIPE and Path(path).is_file() else None
    size, unit = (None, " records") if known is None else (Path(path).stat().st_size, "B")
    with progress_bar(desc="reading", total=size, unit=unit, unit_scale=True) as bar:

        def advance(count: int) -> None:
            bar.update(count if known is None else known.tell() - bar.n)

        yield advance


def progress_bar(**options: Any) -> tqdm[NoReturn]:  # noqa: ANN401 - the options of tqdm
    """Return a progress bar on standard error; it is drawn only on a terminal."""
    return tqdm(**options, disable=not sys.stderr.isatty(), file=sys.stderr)


@contextmanager
def log_if_slow(log: structlog.stdlib.BoundLogger, text: str) -> Iterator[None]:
    """Log a line if the context lasts longer than `_SLOW_S`."""
    timer = Timer(_SLOW_S, log.info, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def dropped_messages(policy: Policy, counts: Mapping[str, int]) -> dict[str, Any]:
    """Return the part of a summary that tells how many messages were dropped; empty if the policy drops none."""
    actions = {DropReason.DELETES: policy.deletes, DropReason.TOMBSTONES: policy.tombstones}
    if not (policy.skip or "drop" in actions.values()):
        return {}
    kinds = [*actions, *([DropReason.SKIP] if policy.skip else [])]
    return {"dropped": {reason.value: counts.get(reason, 0) for reason in kinds}}


def percent(loss: float) -> str:
    """Return a loss in percent, such as ``28 %``."""
    number = 100 * loss
    if 0 < number < 0.01:  # noqa: PLR2004
        return "below 0.01 %"
    return f"{number:.2g} %" if number < 99.5 else f"{number:,.0f} %"  # noqa: PLR2004 - 1e+02 is no percentage
