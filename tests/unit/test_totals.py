"""The last log lines of a worker."""

from __future__ import annotations

from typing import Any, cast

import pytest
from shoal.observability import Metrics, log_totals

pytestmark = pytest.mark.unit


class Log:
    """Keeps the lines that are logged."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))

    warning = info


def logged(*counts: tuple[str, str, int]) -> list[tuple[str, dict[str, Any]]]:
    """Return what is logged after these counts: topic, outcome, records."""
    metrics, log = Metrics(), Log()
    for topic, outcome, count in counts:
        for partition in range(2):
            metrics.records.labels(outcome, "", topic, partition).inc(count)
    metrics.held_at_close = 5
    log_totals(cast("Any", log), metrics)
    return log.lines


STOPPED = {"suppressed": 0, "quarantined": 0, "held": 5}


def test_an_input_of_which_nothing_was_released_is_reported() -> None:
    assert logged(("a", "in", 3)) == [
        ("nothing was released", {"records_in": 6, "held": 5}),
        ("stopped", {"in": 6, "released": 0} | STOPPED),
    ]
    assert logged(("a", "in", 3), ("a", "released", 1)) == [("stopped", {"in": 6, "released": 2} | STOPPED)]
    assert logged() == [("stopped", {"in": 0, "released": 0} | STOPPED)]


def test_values_that_a_taxonomy_lacks_are_reported() -> None:
    metrics, log = Metrics(), Log()
    metrics.count_unknown("a", 0, {"job": 3, "area": 1})
    metrics.count_unknown("a", 1, {"job": 2})
    log_totals(cast("Any", log), metrics)
    assert [fields["not_in_taxonomy"] for _, fields in log.lines] == [{"job": 5, "area": 1}]


def test_each_of_several_inputs_is_reported() -> None:
    assert logged(("b", "in", 3), ("a", "in", 4), ("a", "released", 4), ("c", "released", 1)) == [
        ("nothing was released", {"topic": "b", "records_in": 6}),
        ("stopped", {"in": 14, "released": 10} | STOPPED),
    ]


def test_records_that_an_earlier_process_has_read_are_no_reason_to_warn() -> None:
    metrics, log = Metrics(), Log()
    for outcome, count in (("in", 0), ("released", 41), ("suppressed", 1)):
        metrics.records.labels(outcome, "", "a", 0).inc(count)
    log_totals(cast("Any", log), metrics, ("privacy.l",))
    assert [event for event, _ in log.lines] == ["stopped"]


@pytest.mark.parametrize(
    ("suppressed", "limits", "warns"), [(6, ("privacy.l",), True), (5, ("privacy.l",), False), (6, (), False)]
)
def test_many_suppressed_records_under_limits_of_values_are_reported(
    suppressed: int,
    limits: tuple[str, ...],
    warns: bool,  # noqa: FBT001
) -> None:
    metrics, log = Metrics(), Log()
    for outcome, count in (("in", 50), ("released", 50 - suppressed), ("suppressed", suppressed)):
        metrics.records.labels(outcome, "", "a", 0).inc(count)
    log_totals(cast("Any", log), metrics, limits)
    warning = (
        "the release is not representative of the input: suppressed records mostly have frequent values",
        {"records_in": 50, "suppressed": 6, "under": "privacy.l"},
    )
    assert (warning in log.lines) == warns
    assert len(log.lines) == 1 + warns
