"""All metrics of the service, and the facts behind its readiness. No attribute value is ever a label.

Counts of records and clusters change at once. Metrics that depend on values or delays are stepped: they change after
every `STEP_CLUSTERS` clusters, by an amount that is rounded to three significant digits (`Metrics.observe`). Without
that, the difference of two scrapes around one cluster would reveal the values of one member to a person who knows
those of all others. `shoal_oldest_held_seconds` is rounded, so that it is no clock of arrivals.

Counters of a partition exist from its assignment, at 0: a rate over a series that begins at 5,000 would be 0.
"""

from __future__ import annotations

import asyncio
import math
import platform
import time
from bisect import bisect_right
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TypeAlias

import numpy as np
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from shoal.arrays import Float64Vector, Int64Vector
from shoal.formats import (
    NOT_REPRESENTATIVE,
    DropReason,
    Reason,
    RecordFault,
    RefusalCounter,
    fault_label,
    is_notable,
    is_representative,
)
from shoal.observability.certificates import CertificateExpiry
from shoal.observability.logs import escape_control_characters
from shoal.policy import Policy
from shoal.scales.loss import LossTotals
from shoal.streams import PartitionPipeline
from shoal.streams.stats import NO_CONFIDENTIAL_STATS, ConfidentialStats, ReleaseStats

STEP_CLUSTERS = 20
"""Least number of clusters between two changes of a stepped metric."""
OUTCOMES = ("in", "released", "suppressed", "quarantined")
OUTCOMES_AND_REASONS = (
    ("in", ""),
    ("released", ""),
    ("suppressed", Reason.SUPPRESSED.value),
    *(("quarantined", reason.value) for reason in Reason if reason is not Reason.SUPPRESSED),
    *(("dropped", reason.value) for reason in DropReason),
)
HELD_STEPS_S = (0, *(step * 10**power for power in range(9) for step in (1, 2, 5)))
SIZES = (2, 3, 5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 500, 1000)
POSITIONS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600)
SHORT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
ClusterFigures: TypeAlias = tuple[ReleaseStats, float, Float64Vector, ConfidentialStats, LossTotals | None]
"""What `Metrics.observe` counts of clusters, in the order of its parameters."""
_EXTREMES = {
    "shoal_cluster_values_min": "Fewest values of different people",
    "shoal_cluster_value_share_max": "Largest share of people with one value",
    "shoal_cluster_distance_max": "Largest earth mover's distance from the reference",
}
"""Gauges of the clusters of one step; NaN until something was measured."""


SAME_INSTANCE = "another worker has the same kafka.instance_id: give each its own"
OPENING_S = 5.0
"""A partition without a leader can stay closed for long, while the others are read."""
LOOK_S = 0.1


@dataclass(slots=True)
class Health:
    """The facts behind the readiness probe."""

    joined: bool = False
    broker_reached: bool = False
    leaders_away: bool = False
    """None of the leaders of its open partitions answers, although a broker does."""
    restoring: set[tuple[str, int]] = field(default_factory=set)
    """Assigned partitions, as topic and number, that are not restored yet."""
    stopping: bool = False
    unassigned: bool = False
    """The group assigned no partition to this worker, as where there are more workers than partitions."""

    same_instance_until_s: float = -math.inf
    """Until when (s, monotonic) it is assumed that another worker has the same ``kafka.instance_id``."""
    failure: str = ""
    """Why the last consumer loop ended, until all partitions are open again."""
    waits: Sequence[str] = ()
    """Why it takes no records of some of its partitions."""

    @property
    def ready(self) -> bool:
        """Whether the worker can read and release records now."""
        return not self.reasons()

    @property
    def status(self) -> str:
        """What the probe and the status page say: ready or not, and why."""
        if reasons := self.reasons():
            return "not ready: " + ", ".join(reasons)
        return "ready: in the group, no partition assigned" if self.unassigned else "ready"

    async def accepted(self) -> None:
        """Return when the start was not refused: the worker is ready, or has been a member for `OPENING_S`."""
        members_s = 0.0
        while not self.ready and members_s < OPENING_S:
            await asyncio.sleep(LOOK_S)
            members_s += LOOK_S if self.joined else 0.0

    def reasons(self) -> list[str]:
        """Return the reasons why the worker is not ready."""
        facts = {
            "stopping": self.stopping,
            "broker not reached": not self.broker_reached,
            "no leader of its partitions answers": self.leaders_away,
            "not a member of the group yet": not self.joined,
            "partitions are being restored": bool(self.restoring),
            SAME_INSTANCE: time.monotonic() < self.same_instance_until_s,
        }
        found = [reason for reason, holds in facts.items() if holds]
        if found and self.failure:
            found.append(self.failure)
        return [*found, *(f"records wait: {one}" for one in self.waits)]


TOLD_EVERY_S, TOLD_AT_ONCE = 60.0, 10
"""Time between two lines of the log about one kind of refused messages (s); so many of them are told at once."""
STEP_REFUSED = 20
"""Least number of refused messages between two changes of the metric about them."""


class Metrics:
    """The metrics of a process and the registry from which they are scraped; ``group`` is a label of all series."""

    def __init__(self, group: str = "") -> None:
        self.registry = _GroupRegistry(group)
        _add_process_metrics(self.registry)
        tp = ("topic", "partition")

        def counter(name: str, help_text: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(name, help_text, labels, registry=self.registry)

        def gauge(name: str, help_text: str, labels: Sequence[str] = ()) -> Gauge:
            return Gauge(name, help_text, labels, registry=self.registry)

        self.records = counter("shoal_records_total", "Records by what became of them", ("outcome", "reason", *tp))
        self.held = gauge("shoal_records_held", "Records read and waiting for their cluster", tp)
        self.oldest_held = gauge(
            "shoal_oldest_held_seconds", "Time since the oldest held record was read, down to 1, 2 or 5 x 10^n", tp
        )
        self.clusters = counter("shoal_clusters_released_total", "Clusters released", tp)
        self.clipped = counter("shoal_values_clipped_total", "Values put to a bound; stepped", tp)
        self.unknown = counter(
            "shoal_values_unknown_total", "Values that a taxonomy lacks; stepped", ("attribute", *tp)
        )
        self.early = counter("shoal_clusters_early_total", "Clusters released early so that a limit is kept", tp)
        self.skipped = counter("shoal_records_skipped_total", "Offsets left out by an option of the start", tp)
        self.dated_ahead = counter(
            "shoal_records_dated_ahead_total", "Records quarantined as dated more than an hour ahead of the clock", tp
        )
        self.output_lost = counter(
            "shoal_published_offsets_lost_total",
            "Offsets of the output that brokers had acknowledged and have lost",
            tp,
        )
        self.lag = gauge("shoal_consumer_lag_records", "Offsets from the next one to read to the end of the log", tp)
        self.opening = gauge("shoal_partitions_opening", "Assigned partitions whose start has not succeeded yet")
        self.waiting = gauge("shoal_partitions_waiting", "Open partitions whose records wait, by reason", ("reason",))
        self.unreachable = gauge("shoal_partitions_unreachable", "Open partitions whose leader does not answer")
        self.transactions = counter("shoal_transactions_total", "Transactions by outcome", ("outcome",))
        for outcome in ("committed", "aborted"):
            self.transactions.labels(outcome)
        self.policy_changes = counter("shoal_policy_changes_total", "Starts of a partition under a changed policy", tp)
        self.ready = gauge("shoal_ready", "1 when the worker can take and release records, as /readyz says")
        self.position_weight = gauge("shoal_position_weight", "Weight of the position, mean over partitions; stepped")
        self.policy = gauge("shoal_policy_info", "Fingerprint of the policy in force", ("fingerprint",))
        self.delta = gauge("shoal_delta_records", "The setting stream.delta of the policy in force")
        self.certificates = CertificateExpiry()
        self.registry.register(self.certificates)
        self.sse = counter("shoal_sse_total", "Squared error of released records, scaled to [0, 1]; stepped")
        self.sst = counter("shoal_sst_total", "Total sum of squares of released records, scaled likewise; stepped")
        self.attribute_losses = _AttributeLosses(self.registry)
        self._add_histograms()
        self._loss, self._pending_clusters = [0.0, 0.0], 0
        self.confidential: ConfidentialMetrics | None = None
        """Metrics of confidential values; None if the policy measures none."""
        self._clipped: Counts[tuple[str, int]] = Counts()
        self._unknown: Counts[tuple[str, str, int]] = Counts()
        self._weights: dict[tuple[str, int], float] = {}
        self._add_refusals()
        self.unknown_totals: Counts[str] = Counts()
        """Values that the taxonomy of their attribute lacks, by attribute; logged at the end."""
        self.held_at_close = 0
        """Records that the partitions closed last still held."""

    def _add_refusals(self) -> None:
        self.refused = Counter(
            "shoal_records_refused_total",
            "Refused records by field and reason; stepped",
            ("attribute", "reason"),
            registry=self.registry,
        )
        self.refusals = RefusalCounter()
        """Refused messages by reason and field; they are logged at intervals and at the end."""
        self._refused: Counts[tuple[str, str]] = Counts()
        self._refused_count = 0
        self._told: Counts[str] = Counts()
        self._told_s = -math.inf
        self._untold_since_s: float | None = None

    def _add_histograms(self) -> None:
        self.size = self._histogram("shoal_cluster_size", "Records of a cluster", SIZES)
        self.subjects = self._histogram("shoal_cluster_subjects", "Subjects of a cluster", SIZES)
        self.transaction_seconds = self._histogram("shoal_transaction_seconds", "Length of transactions", SHORT_SECONDS)
        self.reordering = self._histogram("shoal_reordering_positions", "Places moved in the order; stepped", POSITIONS)
        self.delay = self._histogram("shoal_delay_positions", "Records waited for; stepped", POSITIONS)
        self.delay_seconds = self._histogram("shoal_delay_seconds", "Time held; stepped", SECONDS)
        self._stepped = [self.reordering, self.delay, self.delay_seconds]
        self._pending = [_BulkHistogram(h.name, h.help_text, h.edges.tolist()) for h in self._stepped]

    def _histogram(self, name: str, help_text: str, edges: Sequence[float]) -> _BulkHistogram:
        histogram = _BulkHistogram(name, help_text, edges)
        self.registry.register(histogram)
        return histogram

    def count_refused(self, reason: str, faults: Sequence[RecordFault], count: int = 1) -> None:
        """Count refused messages that have the same faults; the metric changes by steps of `STEP_REFUSED`."""
        self.refusals.add(reason, faults, count)
        for label in {(fault.field, fault_label(fault.reason)) for fault in faults} or {("", reason)}:
            self._refused[label] += count
        self._refused_count += count
        if self._refused_count >= STEP_REFUSED:
            for labels, added in self._refused.items():
                self.refused.labels(*labels).inc(added)
            self._refused.clear()
            self._refused_count = 0

    def tell_refusals(self, log: structlog.stdlib.BoundLogger, now_s: float) -> None:
        """Log each kind of messages that were refused since it was logged last, if these are notable.

        To be called at intervals, with a time (s, monotonic). The first are told at once if they are several, else
        within `TOLD_EVERY_S`.
        """
        new_count = self.refusals.total - self._told["refused"]
        if not new_count:
            return
        self._untold_since_s = self._untold_since_s or now_s
        is_due = new_count >= TOLD_AT_ONCE or now_s - self._untold_since_s >= TOLD_EVERY_S
        if not is_due or now_s - self._told_s < TOLD_EVERY_S:
            return
        before, totals = self._told, self.totals()
        self._told, self._told_s, self._untold_since_s = totals | Counts(refused=self.refusals.total), now_s, None
        if is_notable(totals["in"] - before["in"], totals["released"] - before["released"], new_count):
            log_refusals(log, self.refusals, totals["in"])

    def set_policy(self, policy: Policy) -> None:
        """Report the policy in force."""
        self.policy.labels(policy.fingerprint).set(1)
        self.delta.set(policy.require_stream().delta)

    def add_counters(self, topic: str, partition: int, policy: Policy) -> None:
        """Report an assigned partition before it is opened: its counters exist from now on, at 0 if new."""
        for outcome, reason in OUTCOMES_AND_REASONS:
            self.records.labels(outcome, reason, topic, partition)
        counters = (self.clusters, self.clipped, self.early, self.skipped, self.dated_ahead, self.output_lost)
        for one in (*counters, self.policy_changes):
            one.labels(topic, partition)
        for attribute in policy.clustered:
            if attribute.taxonomy is not None:
                self.unknown.labels(attribute.name, topic, partition)

    def add_partition(self, topic: str, partition: int, pipeline: PartitionPipeline) -> None:
        """Report a partition that was opened: its counters, and the position weight of its pipeline.

        Metrics of confidential values exist only if its policy needs them.
        """
        self.add_counters(topic, partition, pipeline.policy)
        self.set_position_weight(topic, partition, pipeline.position_weight)
        measures = pipeline.summary.confidential
        if self.confidential is None and measures is not None:
            self.confidential = ConfidentialMetrics(self.registry)
            self.confidential.protects_values.set(measures.has_protection)

    def watch_oldest_held(self, topic: str, partition: int, held_s: Callable[[], float | None]) -> None:
        """Report at each scrape how long (s) the oldest record of a partition has been held; None if none is held."""
        self.oldest_held.labels(topic, partition).set_function(lambda: _held_step(held_s()))

    def totals(self) -> Counts[str]:
        """Return the records of this process by outcome, over all partitions; ``dropped`` only if messages were."""
        totals = Counts(dict.fromkeys(OUTCOMES, 0))
        for of_topic in self.totals_by_topic().values():
            totals.update(of_topic)
        return totals

    def totals_by_topic(self) -> dict[str, Counts[str]]:
        """Return the same for each input."""
        totals: dict[str, Counts[str]] = {}
        for family in self.records.collect():
            for sample in family.samples:
                if sample.name.endswith("_total"):
                    of_topic = totals.setdefault(sample.labels["topic"], Counts(dict.fromkeys(OUTCOMES, 0)))
                    if sample.value:
                        of_topic[sample.labels["outcome"]] += int(sample.value)
        return totals

    def count_clipped(self, topic: str, partition: int, count: int) -> None:
        """Add clipped values. They are published with the next step, so that they reveal no single record."""
        self._clipped[topic, partition] += count

    def count_unknown(self, topic: str, partition: int, counts: Mapping[str, int]) -> None:
        """Add values that a taxonomy lacks, by attribute. They are published with the next step."""
        self.unknown_totals.update(counts)
        self._unknown.update({(attribute, topic, partition): count for attribute, count in counts.items()})

    def set_position_weight(self, topic: str, partition: int, weight: float) -> None:
        """Set the weight of the position in a partition. It depends on values and is published with the next step."""
        is_first = not self._weights
        self._weights[topic, partition] = weight
        if is_first:
            self._publish_position_weight()

    def _publish_position_weight(self) -> None:
        if self._weights:
            self.position_weight.set(three_digits(sum(self._weights.values()) / len(self._weights)))

    def remove_partition(self, topic: str, partition: int) -> None:
        """Remove the gauges of a revoked partition: another worker reports them now."""
        self._weights.pop((topic, partition), None)
        if not self._weights:
            self.attribute_losses.clear()
        for gauge in (self.held, self.oldest_held, self.lag):
            with suppress(KeyError):
                gauge.remove(topic, str(partition))

    def observe(
        self,
        stats: ReleaseStats,
        total_squares: float,
        seconds: Float64Vector,
        confidential: ConfidentialStats = NO_CONFIDENTIAL_STATS,
        losses: LossTotals | None = None,
        partition: tuple[str, int] = ("", 0),
    ) -> None:
        """Add committed clusters to the metrics; publish the stepped ones after every `STEP_CLUSTERS` clusters.

        ``total_squares`` is the records' part of the total sum of squares, scaled like ``stats.numeric_squared``;
        ``seconds`` (n_records,) is how long each was held; ``partition`` is topic and number, with windows of its own.
        """
        self.size.observe(stats.size)
        self.subjects.observe(stats.subjects)
        reordering, delay, delay_seconds = self._pending
        reordering.observe(stats.displacement)
        delay.observe(stats.delay)
        delay_seconds.observe(seconds)
        self._loss[0] += float(stats.numeric_squared.sum())
        self._loss[1] += total_squares
        if losses is not None:
            self.attribute_losses.observe(partition, losses)
        if self.confidential is not None:
            self.confidential.observe(confidential)
        self._pending_clusters += len(stats.size)
        if self._pending_clusters >= STEP_CLUSTERS:
            self._publish_step()

    def _publish_step(self) -> None:
        for published, pending in zip(self._stepped, self._pending, strict=True):
            published.merge_and_clear(pending)
        self.sse.inc(three_digits(self._loss[0]))
        self.sst.inc(three_digits(self._loss[1]))
        self.attribute_losses.publish_step()
        if self.confidential is not None:
            self.confidential.publish_step()
        for labels, count in self._clipped.items():
            self.clipped.labels(*labels).inc(count)
        self._clipped.clear()
        for names, count in self._unknown.items():
            self.unknown.labels(*names).inc(count)
        self._unknown.clear()
        self._publish_position_weight()
        self._loss = [0.0, 0.0]
        self._pending_clusters = 0


def log_totals(log: structlog.stdlib.BoundLogger, metrics: Metrics, value_limits: Sequence[str] = ()) -> None:
    """Log what this process did with its records; ``value_limits`` are settings that limit the values of clusters.

    Notable refusals, an input without any release, and many suppressed records under limits are warnings.
    """
    totals, held = metrics.totals(), metrics.held_at_close
    records_in, released = totals["in"], totals["released"]
    if is_notable(records_in, released, totals["quarantined"]):
        log_refusals(log, metrics.refusals, records_in)
    by_topic = metrics.totals_by_topic()
    if len(by_topic) > 1:
        for topic, of_topic in sorted(by_topic.items()):
            if of_topic["in"] and not of_topic["released"]:
                log.warning("nothing was released", topic=topic, records_in=of_topic["in"])
    elif records_in and not released:
        log.warning("nothing was released", records_in=records_in, held=held)
    warn_unless_representative(log, value_limits, records_in, released, totals["suppressed"])
    unknown = {"not_in_taxonomy": dict(metrics.unknown_totals)} if metrics.unknown_totals else {}
    log.info("stopped", **totals, held=held, **unknown)


def log_refusals(log: structlog.stdlib.BoundLogger, refusals: RefusalCounter, records_in: int) -> None:
    """Log a warning for each kind of refused records, with what to do about it."""
    for text, remedy in refusals.kinds(records_in):
        advice = {"remedy": remedy} if remedy else {}
        log.warning("records refused", refused=escape_control_characters(text), **advice)


def warn_unless_representative(
    log: structlog.stdlib.BoundLogger, value_limits: Sequence[str], records_in: int, released: int, suppressed: int
) -> None:
    """Warn if these settings, which limit the values of clusters, may have caused many suppressed records."""
    if value_limits and not is_representative(records_in, released, suppressed):
        log.warning(NOT_REPRESENTATIVE, records_in=records_in, suppressed=suppressed, under=", ".join(value_limits))


class ConfidentialMetrics:
    """The metrics of policies that measure confidential values: stepped, but for `shoal_protects_values`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sse = Counter(
            "shoal_confidential_sse_total",
            "Squared distance of confidential numbers from the means of clusters, scaled to [0, 1]; stepped",
            registry=registry,
        )
        self.sst = Counter(
            "shoal_confidential_sst_total",
            "Total sum of squares of confidential numbers, scaled likewise; stepped",
            registry=registry,
        )
        self.protects_values = Gauge(
            "shoal_protects_values", "1 if the policy sets privacy.l, t or max_value_share, else 0", registry=registry
        )
        self._extremes = {
            name: Gauge(name, f"{text} of a confidential attribute, clusters of the last step", registry=registry)
            for name, text in _EXTREMES.items()
        }
        for gauge in self._extremes.values():
            gauge.set(math.nan)
        self._pending = NO_CONFIDENTIAL_STATS

    def observe(self, stats: ConfidentialStats) -> None:
        """Add figures that are published with the next step."""
        self._pending = ConfidentialStats.join((self._pending, stats))

    def publish_step(self) -> None:
        """Publish what was added since the last step, with three digits."""
        self.sse.inc(three_digits(self._pending.within))
        self.sst.inc(three_digits(self._pending.total))
        figures = (self._pending.fewest_values, self._pending.value_share, self._pending.distance)
        for gauge, figure in zip(self._extremes.values(), figures, strict=True):
            if math.isfinite(figure):
                gauge.set(three_digits(figure))
        self._pending = NO_CONFIDENTIAL_STATS


class _AttributeLosses:
    """The loss of each quasi-identifier over the clusters of one step. Its label is the name of the attribute.

    Variation between steps does not count. A clock is measured against what is left after its trend, as in a
    summary. A loss stays if the attribute has none in a step.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._loss = Gauge(
            "shoal_attribute_loss",
            "Loss of a quasi-identifier in its own measure, clusters of the last step; stepped",
            ("attribute",),
            registry=registry,
        )
        self._pending: dict[tuple[str, int], LossTotals] = {}

    def observe(self, partition: tuple[str, int], losses: LossTotals) -> None:
        """Add sums that are published with the next step; ``partition``: topic and number."""
        if partition not in self._pending:
            self._pending[partition] = LossTotals(losses.attributes)
        self._pending[partition].merge(losses)

    def publish_step(self) -> None:
        """Publish the losses of what was added since the last step, with three digits."""
        for totals in self._pending.values():
            if totals.windows is not None:
                totals.windows.close()  # those of another partition have the same numbers
        joined = LossTotals.join(list(self._pending.values()))
        for name, loss in ({} if joined is None else joined.by_attribute()).items():
            if loss is not None:
                self._loss.labels(name).set(three_digits(loss))
        self._pending.clear()

    def clear(self) -> None:
        """Remove all series: the process has no partition."""
        self._loss.clear()


class _BulkHistogram(Collector):
    """A histogram that observes arrays; `prometheus_client.Histogram` observes one number per call."""

    def __init__(self, name: str, help_text: str, edges: Sequence[float]) -> None:
        self.name, self.help_text = name, help_text
        self.edges = np.array(edges, float)
        self.counts = np.zeros(len(edges) + 1, np.int64)
        self.total = 0.0

    def observe(self, numbers: Float64Vector | Int64Vector | Sequence[float]) -> None:
        """Add these numbers to the histogram."""
        values = np.asarray(numbers, float)
        self.counts += np.bincount(np.searchsorted(self.edges, values), minlength=len(self.counts))
        self.total += float(values.sum())

    def merge_and_clear(self, other: _BulkHistogram) -> None:
        """Add the counts of ``other`` and its sum, rounded to three digits, and clear ``other``."""
        self.counts += other.counts
        self.total += three_digits(other.total)
        other.counts[:] = 0
        other.total = 0.0

    def collect(self) -> Iterator[Metric]:
        """Yield the metric family for a scrape."""
        labels = [*(f"{edge:g}" for edge in self.edges), "+Inf"]
        family = HistogramMetricFamily(self.name, self.help_text)
        family.add_metric([], list(zip(labels, np.cumsum(self.counts).tolist(), strict=True)), self.total)
        yield family

    def describe(self) -> Iterable[Metric]:
        """Return the metric family without samples."""
        return [HistogramMetricFamily(self.name, self.help_text)]


class _GroupRegistry(CollectorRegistry):
    """A registry whose series all have the label ``group``, if given: an alert tells pipelines of one job apart."""

    def __init__(self, group: str = "") -> None:
        super().__init__()
        self.group = group

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families of a scrape."""
        for family in super().collect():
            if self.group:
                family.samples = [
                    sample._replace(labels={**sample.labels, "group": self.group}) for sample in family.samples
                ]
            yield family


def three_digits(number: float) -> float:
    """Round to three significant digits: more could reveal a value by a difference."""
    return float(f"{number:.3g}")


def _add_process_metrics(registry: CollectorRegistry) -> None:
    """Add what does not depend on records: processor time, memory, versions and the clock."""
    ProcessCollector(registry=registry)
    build = Gauge("shoal_build_info", "Versions of Shoal and of Python", ("version", "python"), registry=registry)
    build.labels(version("shoal"), platform.python_version()).set(1)
    clock = Gauge("shoal_clock_timestamp_seconds", "Clock of this machine at the scrape, Unix time", registry=registry)
    clock.set_function(time.time)


def _held_step(held_s: float | None) -> float:
    """Return a time (s), rounded down to 1, 2 or 5 times a power of ten; 0 below 1 s and for None."""
    return float(HELD_STEPS_S[max(0, bisect_right(HELD_STEPS_S, held_s or 0.0) - 1)])
