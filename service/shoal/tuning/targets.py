"""Targets of `shoal tune`, such as ``loss<=8%,delay<=30s``, and the choice of a setting by them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from shoal.errors import ConfigError
from shoal.tuning.measuring import Figures
from shoal.tuning.settings import Setting

_FORM = re.compile(r"(\w+)\s*<=?\s*([0-9]+(?:\.[0-9]+)?)\s*(%|ms|s|min|h|)")
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
_UNITS = {"loss": {"%", ""}, "suppressed": {"%", ""}, "delay": {*_SECONDS, ""}, "reordering": {""}}
"""The names of targets and the units of each; without a unit a loss is a part of 1, and a delay a number of records."""
_NO_MORE = 1.1  # times the reordering of the policy itself that a recommendation may have without a target


class Target(NamedTuple):
    """A figure and the most that it may be; a delay is of seconds if ``in_seconds``, else of records."""

    name: str
    limit: float
    text: str
    in_seconds: bool = False

    @property
    def unit(self) -> str:
        """What it is measured in: a share of 1, seconds, or records."""
        return "share" if self.name in {"loss", "suppressed"} else "s" if self.in_seconds else "records"

    def value(self, figures: Figures) -> float | None:
        """Return what a setting reached; None if nothing was released."""
        match self.name:
            case "loss":
                return figures.loss
            case "suppressed":
                return figures.suppressed / figures.records if figures.records else None
            case "reordering":
                return figures.reordering and figures.reordering.mean
        delay = figures.delay_s if self.in_seconds else figures.delay
        return delay and delay.mean

    def excess(self, figures: Figures) -> float:
        """Return how far a setting is from the target: 1 or less holds it, infinity is no value."""
        value = self.value(figures)
        if value is None:
            return math.inf
        return value / self.limit if self.limit else 1.0 if value == 0 else 1.0 + value


def parse_targets(text: str) -> list[Target]:
    """Return the targets of an option; ConfigError says what is wrong."""
    found: dict[str, Target] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        form = _FORM.fullmatch(word)
        if form is None or form[3] not in _UNITS.get(form[1], ()):
            raise ConfigError(
                "--target: give targets such as loss<=8%,delay<=30s,suppressed<=1%,reordering<=50; a delay has "
                "the unit ms, s, min, h, or none for records"
            )
        if form[1] in found:
            raise ConfigError(f"--target: {form[1]} is given twice")
        if "%" in _UNITS[form[1]] and not form[3] and float(form[2]) >= 1:
            raise ConfigError(
                f"--target: {form[1]}<={form[2]} is all of it or more; give a percentage, as {form[1]}<={form[2]}%"
            )
        factor = 0.01 if form[3] == "%" else _SECONDS.get(form[3], 1.0)
        found[form[1]] = Target(form[1], float(form[2]) * factor, word.replace(" ", ""), form[3] in _SECONDS)
    if not found:
        raise ConfigError("--target: names no target")
    return list(found.values())


class Measured(NamedTuple):
    """A setting that was tried, and its figures."""

    setting: Setting
    figures: Figures


class Choice(NamedTuple):
    """The chosen setting and why. ``missed`` are targets that no setting holds, or all if none holds them together."""

    chosen: Measured
    reason: str
    missed: list[str]


def risk_of(figures: Figures) -> tuple[float, ...]:
    """Return what settings are ordered by, low is good: the prosecutor's risk, the guess of a value, and the loss.

    Guesses count in steps of a twentieth: a smaller difference says nothing about another sample.
    """
    risks = (
        1.0 if figures.prosecutor is None else float(f"{figures.prosecutor:.2g}"),
        round(20 * (figures.guess or 0)),
    )
    return (*risks, math.inf if figures.loss is None else figures.loss)


def choose(tried: Sequence[Measured], targets: Sequence[Target]) -> Choice:
    """Return the setting of least risk that holds the targets, or the nearest; the first tried is the policy itself.

    Without targets it is the setting of least loss with no more risk, delay and suppression than the policy itself.
    """
    if not targets:
        return Choice(_least_loss(tried), "", [])
    holding = [one for one in tried if all(target.excess(one.figures) <= 1 for target in targets)]
    if holding:
        chosen = min(holding, key=lambda one: risk_of(one.figures))
        return Choice(chosen, f"it has the least risk of {len(holding)} settings that hold all targets", [])
    alone = [target.text for target in targets if all(target.excess(one.figures) > 1 for one in tried)]
    missed = alone or [target.text for target in targets]
    reachable = [target for target in targets if target.text not in alone]

    def distance(one: Measured) -> tuple[object, ...]:
        given_up = sum(target.excess(one.figures) > 1 for target in reachable)
        return given_up, max(target.excess(one.figures) for target in targets), risk_of(one.figures)

    nearest = min(tried, key=distance)
    reason = "no setting that was tried holds it" if alone else "no setting that was tried holds all of them together"
    return Choice(nearest, f"out of reach: {', '.join(missed)}; {reason}, and this one is the nearest", missed)


def _least_loss(tried: Sequence[Measured]) -> Measured:
    own = tried[0]
    allowed = [one for one in tried if _is_no_worse(one, own)]
    return min(allowed, key=lambda one: math.inf if one.figures.loss is None else one.figures.loss, default=own)


def _is_no_worse(one: Measured, own: Measured) -> bool:
    """Whether a setting has no more risk, delta, suppression and reordering than the policy itself, and its l and t."""
    risks = all(a <= b for a, b in zip(risk_of(one.figures)[:1], risk_of(own.figures)[:1], strict=True))
    spans = [0.0 if each.figures.reordering is None else each.figures.reordering.mean for each in (one, own)]
    return (
        risks
        and not {"k", "delta", "l", "t"} & one.setting.keys()
        and one.figures.suppressed <= own.figures.suppressed
        and spans[0] <= _NO_MORE * spans[1]
    )
