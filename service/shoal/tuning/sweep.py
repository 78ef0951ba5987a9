"""Tries settings on a sample, chooses one, and looks for weights that lose less."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from shoal.errors import ConfigError, InputError
from shoal.files import ProgressDisplay
from shoal.tuning.measuring import Figures
from shoal.tuning.pool import Bench, Outcome, Task, Workers
from shoal.tuning.settings import (
    SPAN,
    WEIGHT,
    Setting,
    Tuned,
    Value,
    default_settings,
    distinct,
    in_words,
    settings_of,
    usable,
)
from shoal.tuning.targets import Choice, Measured, Target, choose

MOST_WEIGHTED = 8
"""Quasi-identifiers whose weights are changed: those with the largest loss."""
ROUNDS, FIRST_FACTOR = 3, 2.0
_SPAN_OF_REORDERING = 3  # target_span over the mean number of places that it gave, about
_GAIN = 0.01  # share of the mean loss that a change of weights must save


@dataclass
class Sweep:
    """What was tried. ``tried`` begins with the policy itself; ``tables`` are the same records as one table, by k."""

    bench: Bench
    tried: list[Measured] = field(default_factory=list)
    tables: list[Measured] = field(default_factory=list)
    weighted: list[Measured] = field(default_factory=list)
    """Settings with other weights that were tried, the first with those of the policy."""
    refused: list[dict[str, str]] = field(default_factory=list)
    choice: Choice | None = None
    half: Figures | None = None
    """What the chosen setting makes of the first half of the sample alone; None after an interrupt."""
    is_interrupted: bool = False


def sweep(
    bench: Bench,
    targets: Sequence[Target],
    grid: dict[str, list[Value]] | None,
    workers: int,
) -> Sweep:
    """Try the settings of a grid, or those that the policy makes sense of; errors as of `Bench.run`.

    An interrupt ends it with what is done; KeyboardInterrupt if the policy itself is not yet.
    """
    found, tuned = Sweep(bench), bench.tuned
    sample = bench.sample(tuned.policy)
    if any(target.in_seconds for target in targets) and sample.event_time is None:
        raise ConfigError(
            "--target: a delay in seconds needs a time attribute that grows with the records; give it in records, as "
            "delay<=100"
        )
    given = default_settings(tuned, sample.records) if grid is None else settings_of(grid, tuned)
    settings, found.refused = usable(given, tuned)
    tables = [] if tuned.policy.stream is None else _tables(settings)
    is_table = tuned.policy.stream is None
    bench.compile_for(len(settings) + _most_weights(len(tuned.policy.quasi_identifiers)))
    with Workers(bench, min(workers, len(settings))) as pool:
        try:
            _measure(pool, found, [Task(one, is_table) for one in settings], [Task(one, True) for one in tables])
            _require_own(found)
            if grid is None and not is_table:
                _combine(pool, found, targets)
            _search_weights(pool, found, choose(found.tried, targets).chosen, is_table=is_table)
            half = replace(bench, most=max(1, sample.records // 2), samples={})
            outcome = half.run(Task(choose(candidates(found), targets).chosen.setting, is_table))
            found.half = outcome if isinstance(outcome, Figures) else None
        except KeyboardInterrupt:
            if not found.tried or found.tried[0].setting:  # nothing stands beside the policy itself
                raise
            found.is_interrupted = True
    _require_own(found)
    found.choice = choose(candidates(found), targets)
    return found


def candidates(found: Sweep) -> list[Measured]:
    """Return the settings to choose from: other weights only where they save something."""
    return [*found.tried, *(one for one in found.weighted[1:] if _saves(one, found.weighted[0]))]


def _require_own(found: Sweep) -> None:
    """Raise InputError unless the sample was released under the policy itself, beside which all others are shown."""
    if not found.tried or found.tried[0].setting:
        own = next((one["reason"] for one in found.refused if one["setting"] == in_words({})), "it was not tried")
        raise InputError(f"the sample cannot be released under the policy itself: {own}")


def _tables(settings: Sequence[Setting]) -> list[Setting]:
    """Return one setting for each k: its table stands beside the streams."""
    return [{"k": k} if k is not None else {} for k in dict.fromkeys(one.get("k") for one in settings)]


def _measure(pool: Workers, found: Sweep, streams: list[Task], tables: list[Task]) -> None:
    """Measure settings, the policy itself first, and keep them in their order, also after an interrupt."""
    outcomes: dict[int, Outcome] = {}
    tasks = [*streams, *tables]
    try:
        with ProgressDisplay("tuning", len(tasks), " settings") as display:
            for place, outcome in pool.run(tasks):
                outcomes[place] = outcome
                display.advance(1)
    finally:
        for place, outcome in sorted(outcomes.items()):
            task = tasks[place]
            kept = found.tables if place >= len(streams) else found.tried
            if isinstance(outcome, Figures):
                kept.append(Measured(task.setting, outcome))
            else:
                kind = " as one table" if kept is found.tables else ""
                found.refused.append({"setting": in_words(task.setting) + kind, "reason": outcome})


def _combine(pool: Workers, found: Sweep, targets: Sequence[Target]) -> None:
    """Where no setting holds all targets, try rules, or for a target of reordering positions, with each k and delta."""
    if not targets or not choose(found.tried, targets).missed:
        return
    limits = [target.limit for target in targets if target.name == "reordering"]
    name = "position" if limits else "rule"
    others = [one.setting for one in found.tried if one.setting.keys() == {name}]
    others += [{name: {SPAN: max(1, round(_SPAN_OF_REORDERING * limit))}} for limit in limits]
    around = [one.setting for one in found.tried if one.setting.keys() <= {"k", "delta"}]
    combined = [setting | other for setting in around for other in others]
    known = [one.setting for one in found.tried]
    new = [one for one in distinct(combined, found.bench.tuned) if one not in known]
    _measure(pool, found, [Task(one, is_table=False) for one in new], [])


def _search_weights(pool: Workers, found: Sweep, start: Measured, *, is_table: bool) -> None:
    """Change the weight of one attribute after the other as long as the mean loss falls, and no more is suppressed."""
    tuned, losses = found.bench.tuned, start.figures.losses
    names = sorted((name for name, loss in losses.items() if loss is not None), key=lambda name: -(losses[name] or 0))
    if len(names) < 2 or start.figures.loss is None:  # noqa: PLR2004 - one has no weight beside others
        return
    found.weighted.append(start)
    best, factor = start, FIRST_FACTOR
    with ProgressDisplay("weighing attributes", _most_weights(len(names)), " settings") as display:
        for _ in range(ROUNDS):
            changes = [
                _weighted(tuned, best.setting, {name: change})
                for name in names[:MOST_WEIGHTED]
                for change in (factor, 1 / factor)
            ]
            better = [one for one in _outcomes(pool, found, changes, display, is_table=is_table) if _saves(one, best)]
            better.sort(key=lambda one: one.figures.loss or math.inf)
            if not better:
                factor = math.sqrt(factor)
                continue
            joined = _joined(best, better)
            last = [better[0], *(_outcomes(pool, found, [joined], display, is_table=is_table))]
            best = min(last, key=lambda one: one.figures.loss or math.inf)


def _most_weights(attributes: int) -> int:
    """Return how many settings the search for weights tries at most."""
    return ROUNDS * (2 * min(attributes, MOST_WEIGHTED) + 1)


def _joined(best: Measured, better: Sequence[Measured]) -> Setting:
    """Return all changes that save something; of the two of one attribute the one that saves more."""
    joined = dict(best.setting)
    for one in reversed(better):
        joined |= {name: value for name, value in one.setting.items() if best.setting.get(name) != value}
    return joined


def _weighted(tuned: Tuned, setting: Setting, factors: dict[str, float]) -> Setting:
    own, changed = tuned.weights(), dict(setting)
    for name, factor in factors.items():
        now = changed.get(WEIGHT + name, own[name])
        assert isinstance(now, int | float)  # noqa: S101
        changed[WEIGHT + name] = float(f"{now * factor:.3g}")
    return changed


def _outcomes(
    pool: Workers, found: Sweep, settings: list[Setting], display: ProgressDisplay, *, is_table: bool
) -> list[Measured]:
    """Measure settings and keep them in their order: of equal ones the first is chosen, whichever was done first."""
    known = [one.setting for one in found.weighted]
    new = [one for one in distinct(settings, found.bench.tuned) if one not in known]
    outcomes: dict[int, Figures] = {}
    try:
        for place, outcome in pool.run([Task(one, is_table) for one in new]):
            display.advance(1)
            if isinstance(outcome, Figures):
                outcomes[place] = outcome
    finally:
        measured = [Measured(new[place], figures) for place, figures in sorted(outcomes.items())]
        found.weighted += measured
    return measured


def _saves(one: Measured, best: Measured) -> bool:
    before, after = best.figures.loss, one.figures.loss
    if before is None or after is None:
        return False
    return after <= (1 - _GAIN) * before and one.figures.suppressed <= best.figures.suppressed
