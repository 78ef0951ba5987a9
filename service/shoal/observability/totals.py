"""The last log lines of a worker: what became of its records."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from shoal.formats import NOT_REPRESENTATIVE, is_notable, is_representative
from shoal.observability.logs import escape_control_characters
from shoal.observability.metrics import Metrics

__all__ = ["log_totals", "warn_unless_representative"]


def log_totals(log: structlog.stdlib.BoundLogger, metrics: Metrics, value_limits: Sequence[str] = ()) -> None:
    """Log what this process did with its records.

    If nothing was released of an input that has records, or more than 1 % of all records were refused, this is a
    warning of its own, and so is each reason and field for which records were refused. ``value_limits`` are settings
    that limit the values of clusters: under these, more than 10 % of suppressed records are a warning, too.
    """
    totals, held = metrics.totals(), metrics.held_at_close
    records_in, released = totals["in"], totals["released"]
    if is_notable(records_in, released, totals["quarantined"]):
        for text in metrics.refusals.texts(records_in):
            log.warning("records refused", refused=escape_control_characters(text))
    by_topic = metrics.totals_by_topic()
    if len(by_topic) > 1:
        for topic, of_topic in sorted(by_topic.items()):
            if of_topic["in"] and not of_topic["released"]:
                log.warning("nothing was released", topic=topic, records_in=of_topic["in"])
    elif records_in and not released:
        log.warning("nothing was released", records_in=records_in, held=held)
    warn_unless_representative(log, value_limits, records_in, released, totals["suppressed"])
    unknown = {"not_in_taxonomy": metrics.unknown_totals} if metrics.unknown_totals else {}
    log.info("stopped", **totals, held=held, **unknown)


def warn_unless_representative(
    log: structlog.stdlib.BoundLogger, value_limits: Sequence[str], records_in: int, released: int, suppressed: int
) -> None:
    """Warn if these settings, which limit the values of clusters, may have caused many suppressed records."""
    if value_limits and not is_representative(records_in, released, suppressed):
        log.warning(NOT_REPRESENTATIVE, records_in=records_in, suppressed=suppressed, under=", ".join(value_limits))
