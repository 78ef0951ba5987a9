"""One run of a command: long work in a thread, its progress on a terminal, and what it did with the records.

Losses are told with two significant digits: more could reveal a value by a difference. Names of attributes and numbers
of categories are shown, and no value.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, BinaryIO, NoReturn, Self, TypeVar

from tqdm import tqdm

from shoal.files.files import PIPE
from shoal.formats import DropReason, RefusalCounter
from shoal.observability import logger
from shoal.policy import Attribute, Policy
from shoal.process_end import end_process
from shoal.scales import SCALES
from shoal.scales.loss import MOST_CATEGORIES, mean_loss

T = TypeVar("T")
_INTERRUPTED = 130
REFRESH_S, LOG_S = 0.5, 10.0
"""Time between two looks at the progress of work: on a terminal, and elsewhere (s)."""
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
    dropped_count: int = 0
    """Messages that the policy leaves out as no records (`skip`, `deletes`, `tombstones`)."""

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
        if attribute.is_nominal and attribute.taxonomy is None and not attribute.prefixes:
            changes.append("a taxonomy")
        if attribute.publish == "ancestor":
            changes.append("publish: mode (then a member has the published value)")
        kept = f"its {self._values_of(attribute)}" if attribute.is_nominal else "it"
        reason = f"{limits} cannot keep {kept}"
        if attribute.is_nominal and not self._are_many(attribute):
            reason = f"{limits} could keep {kept}, but the other attributes outweigh it"
        return f"{attribute.name}: {reason}; what helps: {', '.join(changes)}, or leave it out"


class ProgressDisplay:
    """Context that shows how far long work is: on a terminal a bar or a line, elsewhere a log line every 10 s.

    A thread shows it, since kernels release the interpreter. Without ``unit`` the length of the work is unknown. A run
    that lasts for weeks is not to be logged.
    """

    def __init__(
        self, label: str, total: float | None = None, unit: str | None = None, *, is_logged: bool = True
    ) -> None:
        self._label, self._total, self._unit = label, total, unit
        self._done, self._step, self._began_s = 0.0, "", time.monotonic()
        layout = {"bar_format": "{desc}: {elapsed}"} if unit is None else {"unit": unit, "unit_scale": True}
        is_terminal = sys.stderr.isatty()
        self._bar: tqdm[NoReturn] = tqdm(desc=label, total=total, **layout, disable=not is_terminal, file=sys.stderr)
        self._show, self._wait_s = (self._bar.refresh, REFRESH_S) if is_terminal else (self._log, LOG_S)
        self._is_logged = is_logged or is_terminal
        self._is_over, self._thread = Event(), Thread(target=self._run, name=f"{label}-display", daemon=True)

    def __enter__(self) -> Self:
        if self._is_logged:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._is_logged:
            self._thread.join()
        self._bar.close()

    def advance(self, count: float) -> None:
        """Count what was done in addition, in the unit of the total."""
        self._done += count
        self._bar.update(count)

    def tell(self, step: str, share: float) -> None:
        """Take the share of a step that is done; the steps of the work are not known before."""
        self._step = f"{step} {100 * share:.0f} %"
        self._bar.set_description_str(f"{self._label}, {self._step}", refresh=False)

    def _run(self) -> None:
        while not self._is_over.wait(self._wait_s):
            self._show()

    def _log(self) -> None:
        done = self._step
        if self._unit is not None:
            done = f"{100 * self._done / self._total:.0f} %" if self._total else f"{self._done:,.0f}{self._unit}"
        facts = {"done": done} if done else {}
        logger("cli").info(f"still {self._label}", seconds=round(time.monotonic() - self._began_s), **facts)


@contextmanager
def reading_bar(path: str, unit: str, file: BinaryIO | None) -> Iterator[Callable[[int], None]]:
    """Show how much was read: the share of a file's bytes, else records; yield what takes the count of a block.

    ``file`` is None if the source is followed; then nothing is logged.
    """
    known = file if unit == "line" and path != PIPE and Path(path).is_file() else None
    size, unit, last = (None, " records", 0) if known is None else (Path(path).stat().st_size, "B", 0)
    with ProgressDisplay("reading", size, unit, is_logged=file is not None) as display:

        def advance(count: int) -> None:
            nonlocal last
            before, last = last, last + count if known is None else known.tell()
            display.advance(last - before)

        yield advance


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
