"""Scale ``time``: whole numbers of ms since 1970-01-01T00:00Z, which float64 holds for the years 1 to 9999."""

from __future__ import annotations

import numpy as np

from shoal.arrays import Float64Vector, Int64Vector
from shoal.errors import GuaranteeError
from shoal.policy import FIRST_MS, LAST_MS, MS_PER_UNIT, EpochUnit, Scale, TimeStep
from shoal.scales.numeric import INTEGER
from shoal.scales.scale import AttributeScale, Publisher, ScaleFault

__all__ = ["TimePublisher", "TimeScale"]

_UNIT = "correct the values or the unit; leave unit out for times in ISO 8601"
_NOT_TIMES: dict[EpochUnit | None, ScaleFault] = {
    None: ScaleFault("not a time in ISO 8601", "write times as 2026-07-14 or 2026-07-14T09:30:00Z, or set unit"),
    "s": ScaleFault("not a number of seconds since 1970", _UNIT),
    "ms": ScaleFault("not a number of milliseconds since 1970", _UNIT),
    "us": ScaleFault("not a number of microseconds since 1970", _UNIT),
    "days": ScaleFault("not a number of days since 1970", _UNIT),
}
_DATE = r'"-?[0-9]{1,5}-[0-9]{2}-[0-9]{2}"'
_DATE_TIME = r'"-?[0-9]{1,5}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"'
"""Half a step before the first or after the last time is not in the years 1 to 9999."""
_DAY_MS = int(MS_PER_UNIT["days"])


class TimeScale(AttributeScale, scale=Scale.TIME):
    """Times are coordinates; a cluster publishes the mean, rounded to a step."""

    has_moments = True
    has_trend = True
    faults = tuple(_NOT_TIMES.values())

    @property
    def _step(self) -> TimeStep:
        if self.attribute.time_step is None:
            raise GuaranteeError("a time has no step")  # a policy gives every time one
        return self.attribute.time_step

    @property
    def smallest_step(self) -> float:
        """The step in ms."""
        return float(self._step.milliseconds)

    @property
    def pattern(self) -> str:
        """A whole number of the unit, or a date or time in the form of ISO 8601."""
        if self.attribute.unit is not None:
            return INTEGER
        return _DATE if self._step.is_date else _DATE_TIME

    @property
    def off_scale(self) -> ScaleFault:
        """The value is no time in the form or unit of the policy."""
        return _NOT_TIMES[self.attribute.unit]

    def publisher(self, *, is_exact: bool, is_table: bool) -> Publisher:  # noqa: ARG002
        """Return what computes rounded means."""
        return TimePublisher(self._step, self.attribute.unit)


class TimePublisher(Publisher):
    """The exact mean of times, rounded to the nearest multiple of a step since 1970-01-01T00:00Z.

    They are written as numbers of ``unit``; without one in the form of ISO 8601.

    Sums are integers, so the mean is exact. Ties go to the even multiple. Steps of months and years are those of the
    Gregorian calendar in UTC; the mean is rounded to the nearest start of one, ties to the one with an even number
    since January 1970 or since 1970. A result may lie half a step outside the bounds. If the nearest multiple is
    outside the years 0001 to 9999, the next one inside is published.
    """

    def __init__(self, step: TimeStep, unit: EpochUnit | None) -> None:
        self._step, self._unit = step, unit

    def publish(self, values: Float64Vector, bounds: Int64Vector) -> tuple[list[str], Float64Vector]:
        """Return the rounded means as JSON strings in the form of ISO 8601, or as numbers of the unit; and in ms."""
        sizes = np.diff(bounds)
        whole, rest = _exact_means(values.astype(np.int64), bounds)
        number, start, length = self._step_before(whole)
        # The mean exceeds the middle of the step by (2 * rest / size - missing) / 2, where 0 <= rest < size.
        missing = np.clip(length - 2 * (whole - start), -1, 2) * sizes
        is_up = (2 * rest > missing) | ((2 * rest == missing) & (number % 2 == 1))
        end = start + length
        rounded = np.where((is_up & (end <= LAST_MS)) | (start < FIRST_MS), end, start)
        return self._texts(rounded), rounded.astype(np.float64)

    def _step_before(self, times: Int64Vector) -> tuple[Int64Vector, Int64Vector, Int64Vector]:
        """Return of the step that contains each time: its number since 1970, its start and its length (ms)."""
        if self._step.unit in {"month", "year"}:
            unit = "M" if self._step.unit == "month" else "Y"
            number = times.astype("M8[ms]").astype(f"M8[{unit}]").astype(np.int64)
            start, end = (
                count.astype(f"M8[{unit}]").astype("M8[ms]").astype(np.int64) for count in (number, number + 1)
            )
            return number, start, end - start
        length = np.full(len(times), self._step.milliseconds)
        number = times // length
        return number, number * length, length

    def _texts(self, times: Int64Vector) -> list[str]:
        """Write times (ms)."""
        if self._unit is not None:
            numbers = times * 1000 if self._unit == "us" else times // int(MS_PER_UNIT[self._unit])
            return [str(number) for number in numbers.tolist()]
        precision, zone = ("D", "") if self._step.is_date else ("s", "Z")
        written = np.datetime_as_string(times.astype("M8[ms]").astype(f"M8[{precision}]"))
        return [f'"{text}{zone}"' for text in written.tolist()]


def _exact_means(times: Int64Vector, bounds: Int64Vector) -> tuple[Int64Vector, Int64Vector]:
    """Return for each cluster the mean as whole ms, rounded down, and the rest of the division by its size.

    Days and milliseconds are added apart: a sum of milliseconds of 40,000 members could exceed int64.
    """
    sizes = np.diff(bounds)
    days, in_day = np.divmod(times, _DAY_MS)
    whole_days, left_days = np.divmod(np.add.reduceat(days, bounds[:-1]), sizes)
    whole, rest = np.divmod(left_days * _DAY_MS + np.add.reduceat(in_day, bounds[:-1]), sizes)
    return whole_days * _DAY_MS + whole, rest
