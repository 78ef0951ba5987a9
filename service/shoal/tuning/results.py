"""What was tried, as plain values for JSON and the page: rounded, and nothing of a single record.

Figures have three significant digits, risks two. Counts of records are multiples of k, or "fewer than k". A share that
is suppressed is rounded up to a multiple of k records. No value of the sample is among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.reports.cells import coarse, share
from shoal.tuning.measuring import LATE, Figures, Sample, Spread
from shoal.tuning.settings import WEIGHT, Setting, block_of, in_words
from shoal.tuning.sweep import Sweep
from shoal.tuning.targets import Measured, Target

_NARROW = 0.9  # part of a limit from which on it is held narrowly
MOST_LINES = 4
"""Most curves of one drawing."""
_NOT_EXAMINED = (
    "whether later records are like the sample: loss and suppression follow what people do next",
    "several partitions: each loses as one that receives its part of the records",
    "time limits, unless an attribute is the time of events: `max_delay_s` then follows it",
    "people who are followed over several clusters, and what an attacker knows besides quasi-identifiers",
    "settings that were not tried: a better one may lie between them",
)


def results_of(found: Sweep, targets: Sequence[Target]) -> dict[str, Any]:
    """Return every number and text of the page."""
    tuned, k = found.bench.tuned, found.bench.tuned.policy.k
    sample = found.bench.sample(tuned.policy)
    choice = found.choice
    assert choice is not None  # noqa: S101 - `sweep` returns no other
    own, chosen = found.tried[0], choice.chosen
    return {
        "recommended": {
            "setting": chosen.setting,
            "words": in_words(chosen.setting),
            "block": block_of(chosen.setting),
            "reason": choice.reason or _reason(own, chosen),
            "protects_less": _protects_less(chosen.setting, tuned.own)
            or (chosen.figures.prosecutor or 1.0) > (own.figures.prosecutor or 1.0),
            "figures": figures_of(chosen.figures, k),
            "loss_of_first_half": None if found.half is None else _round(found.half.loss, 3),
        },
        "targets": [_target(target, chosen, choice.missed, found.tried, k) for target in targets],
        "out_of_reach": choice.missed,
        "policy": {
            "fingerprint": tuned.policy.fingerprint,
            "setting": tuned.own | {WEIGHT + name: weight for name, weight in tuned.weights().items()},
            "is_table": tuned.policy.stream is None,
            "figures": figures_of(own.figures, k),
        },
        "sample": _sample(sample, found, k),
        "settings": [_line(one, k) for one in found.tried],
        "tables": [_line(one, k) for one in found.tables],
        "weights": [_line(one, k) for one in found.weighted],
        "not_possible": found.refused,
        "curves": _curves(found),
        "is_interrupted": found.is_interrupted,
        "not_examined": list(_NOT_EXAMINED),
    }


def _reason(own: Measured, chosen: Measured) -> str:
    if not chosen.setting:
        return "no setting that was tried loses less with the same k, delta, l and t, and no more is suppressed"
    return (
        "it loses least of the settings with the same k, delta, l and t that suppress no more records and reorder "
        f"about as many; the policy itself loses {_in_percent(own.figures.loss)}"
    )


def _protects_less(setting: Setting, own: Setting) -> bool:
    """Whether a setting promises less than the policy: a smaller k or l, or a larger t; without one, l and t are 1."""

    def of(values: Setting, name: str) -> float:
        value = values.get(name, own[name])
        return value if isinstance(value, int | float) else 1

    return any(of(setting, name) < of(own, name) for name in ("k", "l")) or of(setting, "t") > of(own, "t")


def _in_percent(loss: float | None) -> str:
    return "nothing that is known" if loss is None else f"{100 * loss:.3g} %"


def _sample(sample: Sample, found: Sweep, k: int) -> dict[str, Any]:
    unique = sample.unique(found.bench.tuned.policy)
    guess = sample.best_guess()
    return {
        "records": coarse(sample.records, k),
        "accepted": coarse(len(sample.numbers), k),
        "refused": coarse(sample.refusals.total, k),
        "people": coarse(sample.people, k),
        "is_cut": sample.is_cut,
        "most_records": found.bench.most,
        "event_time": sample.event_time,
        "unique": coarse(unique, k),
        "unique_share": _round(share(unique, len(sample.numbers), k), 2),
        "guess": None if guess is None else _round(share(*guess, k), 2),
    }


def _target(
    target: Target, chosen: Measured, missed: Sequence[str], tried: Sequence[Measured], k: int
) -> dict[str, Any]:
    def value_of(one: Measured) -> float | None:
        if target.name == "suppressed":
            return _rounded_up(one.figures.suppressed, one.figures.records, k)
        return target.value(one.figures)

    values = [value for one in (*tried, chosen) if (value := value_of(one)) is not None]
    return {
        "target": target.text,
        "limit": target.limit,
        "unit": target.unit,
        "reached": _round(value_of(chosen), 3),
        "is_held": target.excess(chosen.figures) <= 1,
        "is_narrow": _NARROW < target.excess(chosen.figures) <= 1,
        "least": _round(min(values), 3) if values else None,
        "is_out_of_reach": target.text in missed,
    }


def _line(one: Measured, k: int) -> dict[str, Any]:
    return {"setting": one.setting, "words": in_words(one.setting), "figures": figures_of(one.figures, k)}


def figures_of(figures: Figures, k: int) -> dict[str, Any]:
    """Return the figures of a setting as they are shown."""
    return {
        "released": coarse(figures.released, k),
        "suppressed_share": _rounded_up(figures.suppressed, figures.records, k),
        "loss": _round(figures.loss, 3),
        "loss_by_attribute": {name: _round(loss, 3) for name, loss in figures.losses.items()},
        "delay": _spread(figures.delay, figures.released, k),
        "delay_s": _spread(figures.delay_s, figures.released, k),
        "reordering": _spread(figures.reordering, figures.released, k),
        "smallest_cluster": figures.smallest,
        "mean_cluster": _round(figures.mean_size, 3),
        "l": figures.l,
        "t": _round(figures.t, 2),
        "prosecutor_largest": _round(figures.prosecutor, 2),
        "prosecutor_mean": _round(figures.prosecutor_mean, 2),
        "journalist_largest": _round(figures.journalist, 2),
        "marketer": _round(figures.marketer, 2),
        "linkage": _round(figures.linkage, 2),
        "guess": _round(figures.guess, 2),
        "single_value": _round(figures.single, 2),
        "unique": coarse(figures.unique, k),
        "rule": figures.rule,
        "cpu_s": _round(figures.cpu_s, 2),
    }


def _rounded_up(count: int, total: int, k: int) -> float:
    """Return a share that is not below what it is, of a number of records that does not follow from it."""
    whole = coarse(total, k)
    return round(min(1.0, -(-count // k) * k / whole), 4) if isinstance(whole, int) and whole else float(count > 0)


def _spread(spread: Spread | None, released: int, k: int) -> dict[str, float | None] | None:
    """Return mean and late part: two digits, and None where fewer than k records are later, as it is that of one."""
    late = (100 - LATE) * released >= 100 * k
    return spread and {"mean": _round(spread.mean, 3), "p95": _round(spread.late, 2) if late else None}


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")


def _curves(found: Sweep) -> dict[str, list[dict[str, Any]]]:
    """Return points of the trade-offs: lines by name, each of pairs of a figure and the mean loss."""
    around = [one for one in found.tried if one.setting.keys() <= {"k", "delta"}]
    tuned = found.bench.tuned
    stream = tuned.policy.stream

    def k_of(one: Measured) -> int:
        k = one.setting.get("k", tuned.policy.k)
        assert isinstance(k, int)  # noqa: S101
        return k

    def delta_of(one: Measured) -> object:
        return one.setting.get("delta", stream and stream.delta)

    curves: dict[str, list[dict[str, Any]]] = {"delay": [], "reordering": [], "k": []}
    if stream is None:
        curves["k"] = _lines(
            [("as one table", [(k_of(one), one) for one in found.tried if one.setting.keys() <= {"k"}])]
        )
        return curves
    by_k = {k: [one for one in around if k_of(one) == k] for k in sorted(set(map(k_of, around)))}
    curves["delay"] = _lines(
        [
            (f"k {k}", [(one.figures.delay and one.figures.delay.mean, one) for one in lines])
            for k, lines in by_k.items()
        ]
    )
    steered = [one for one in found.tried if one.setting.keys() <= {"position"}]
    others = [one for one in found.tried if one.setting.keys() == {"rule"}]
    curves["reordering"] = _lines(
        [
            (name, [(one.figures.reordering and one.figures.reordering.mean, one) for one in line])
            for name, line in (("position", steered), *((in_words(one.setting), [one]) for one in others))
        ]
    )
    deltas = sorted({delta for one in around if isinstance(delta := delta_of(one), int)})
    by_delta = [(f"delta {delta}", [(k_of(one), one) for one in around if delta_of(one) == delta]) for delta in deltas]
    table = [(float(k_of(one)), one) for one in found.tables]
    curves["k"] = _lines([*by_delta[-MOST_LINES:], ("one table", table)])
    return curves


def _lines(lines: Sequence[tuple[str, Sequence[tuple[float | None, Measured]]]]) -> list[dict[str, Any]]:
    found = []
    for name, line in lines:
        points = sorted(
            (_round(place, 3) or 0.0, _round(one.figures.loss, 3) or 0.0, in_words(one.setting))
            for place, one in line
            if place is not None and one.figures.loss is not None
        )
        if points:
            found.append(
                {"name": name, "points": [{"x": x, "loss": loss, "setting": words} for x, loss, words in points]}
            )
    return found
