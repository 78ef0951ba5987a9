"""What one setting makes of a sample: loss, delay, reordering, and what an attacker can hope for.

The figures are exact and stay in the process; `shoal.tuning.results` rounds what is shown of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from shoal.arrays import Float64Matrix, Float64Vector, Int64Vector
from shoal.audit.scales import published_values
from shoal.errors import InputError
from shoal.files import SampleBlocks, read_blocks
from shoal.formats import ConfidentialKeys, JsonEncoder
from shoal.policy import Attribute, MessagePart, Policy, Scale
from shoal.protection.diversity import CountedValues, people_of
from shoal.reports import codes_of_rows, unique_records
from shoal.scales import CategoryIndex
from shoal.streams import BlockDecisions, PartitionPipeline
from shoal.tables import AlgorithmSpec, ConfidentialAttribute, TablePipeline, emd_of_clusters, linkage_share

MOST_VALUES = 50
"""Most values of a confidential attribute whose distribution in a cluster is compared with that of all people."""
_GROWING = 0.95  # share of the steps between consecutive records in which the time of events does not fall
LATE = 95  # percentile of delays that is shown beside the mean


class Spread(NamedTuple):
    """Mean, and what 95 of 100 records do not exceed."""

    mean: float
    late: float

    @classmethod
    def of(cls, parts: Sequence[Int64Vector | Float64Vector]) -> Self | None:
        """Return those of all values; None if there are none."""
        values = np.concatenate(parts) if parts else np.zeros(0)
        return cls(float(values.mean()), float(np.percentile(values, LATE))) if len(values) else None


@dataclass(frozen=True)
class Figures:
    """What one setting makes of a sample. None is not known: nothing was released, or there is no such attribute.

    ``guess`` is the mean chance to guess a confidential value of a person whose cluster is known, of the attribute
    with the largest; ``linkage`` the share of released rows that are nearest to their own original in numbers, ranks
    and times.
    """

    records: int
    released: int
    suppressed: int
    loss: float | None
    losses: dict[str, float | None]
    delay: Spread | None = None  # records
    delay_s: Spread | None = None  # seconds, by the time of events
    reordering: Spread | None = None  # records
    smallest: int | None = None  # people of a cluster
    mean_size: float | None = None
    l: int | None = None  # noqa: E741 - of l-diversity
    t: float | None = None
    guess: float | None = None
    single: float | None = None  # share of records in clusters of one confidential value
    prosecutor: float | None = None
    prosecutor_mean: float | None = None
    journalist: float | None = None
    marketer: float | None = None
    linkage: float | None = None
    unique: int = 0  # released rows that no other row equals
    rule: str = ""
    cpu_s: float = 0.0


class Sample:
    """The records of a sample, decoded under a policy. Other k, delta, rules and weights decode them alike."""

    def __init__(self, policy: Policy, blocks: SampleBlocks) -> None:
        self.blocks = blocks.blocks
        self.records, self.refusals, self.is_cut = blocks.records, blocks.refusals, blocks.is_cut
        index, encoded, start = CategoryIndex(policy), [], 0
        numbers: list[Int64Vector] = []
        for block, count in self.blocks:
            encoded.append(index.encode(block))
            numbers.append(block.index + start)
            start += count
        if not encoded or not sum(map(len, encoded)):
            raise InputError("the sample has no record that the policy accepts; `shoal check POLICY -i FILE` tells why")
        self.numbers = np.concatenate(numbers)
        self.values: Float64Matrix = np.concatenate([block.values for block in encoded])
        self.subjects = np.concatenate([block.subjects for block in encoded])
        self.event_time, self.times_ms = _event_time(policy, self.values)
        self.confidential = {
            attribute.name: self._codes(place, attribute, policy)
            for place, attribute in enumerate(policy.unchanged_fields)
            if attribute in policy.confidential
        }

    @classmethod
    def read(cls, policy: Policy, path: str, file_format: str | None, most: int) -> Self:
        """Read the first records of a file; errors as of `read_blocks`."""
        return cls(policy, read_blocks(policy, path, file_format, most))

    def _codes(self, place: int, attribute: Attribute, policy: Policy) -> Int64Vector:
        keys, codes = ConfidentialKeys(attribute, policy.missing_values), dict[str | None, int]()
        columns = (keys.keys(block.unchanged_columns[place]) for block, _ in self.blocks)
        return np.array([codes.setdefault(key, len(codes)) for column in columns for key in column], np.int64)

    @property
    def people(self) -> int:
        """Number of people."""
        return len(np.unique(self.subjects))

    def unique(self, policy: Policy) -> int:
        """Return how many records no other person shares the quasi-identifiers of."""
        return unique_records(codes_of_rows(self.values[:, : len(policy.quasi_identifiers)]), self.subjects)

    def best_guess(self) -> tuple[int, int] | None:
        """Return how many of all people have the most frequent confidential value, of the attribute with most."""
        whole = people_of(np.zeros(len(self.subjects), np.int64), self.subjects)
        most = [int(CountedValues(codes, whole).largest[0]) for codes in self.confidential.values()]
        return (max(most), int(whole.counts[0])) if most else None


def _event_time(policy: Policy, values: Float64Matrix) -> tuple[str | None, Float64Vector | None]:
    """Return name and values (ms, never falling) of the time that grows with the records; None if there is none."""
    times = [(place, one) for place, one in enumerate(policy.clustered) if one.scale is Scale.TIME]
    for place, one in sorted(times, key=lambda pair: pair[1].source.part is not MessagePart.TIMESTAMP):
        column = values[:, place]
        steps = np.diff(column)
        if len(steps) and not np.isnan(column).any() and column[-1] > column[0] and (steps >= 0).mean() >= _GROWING:
            return one.name, np.maximum.accumulate(column)
    return None, None


def measure(sample: Sample, policy: Policy, *, is_table: bool) -> Figures:
    """Release the sample under a policy, as a stream or as one table, and measure it; nothing is written.

    GuaranteeError if a decision violates an invariant; InputError or ConfigError if nothing can be released.
    """
    began_s = time.process_time()
    found = _table(sample, policy) if is_table else _stream(sample, policy)
    return Figures(**found, cpu_s=time.process_time() - began_s)


def _stream(sample: Sample, policy: Policy) -> dict[str, Any]:
    pipeline, run = PartitionPipeline(policy, JsonEncoder(policy)), _Run(sample, policy)
    start = 0
    for decoded, count in sample.blocks:
        block = pipeline.apply_quota(decoded, decoded.index + start)
        if len(block):
            run.add(pipeline.push(block, run.arrive(block.index + start)))
        start += count
    run.add(pipeline.flush())
    losses, texts = pipeline.summary.losses.by_attribute(), run.texts
    released = pipeline.summary.released
    quota = len(sample.numbers) - len(run.arrived)
    found = {
        "records": len(sample.numbers),
        "released": released,
        "suppressed": pipeline.summary.suppressed.total() + quota,
        "loss": _mean(losses),
        "losses": losses,
        "delay": Spread.of(run.delays),
        "delay_s": Spread.of(run.seconds),
        "reordering": Spread.of(run.displacements),
        "rule": policy.require_stream().rule,
    }
    if not texts:
        return found
    members, bounds = np.concatenate(run.members), np.array([0, *run.ends])
    found |= _clusters(sample, members, bounds, texts)
    found["linkage"] = _linkage(sample, policy, members, bounds, texts)
    return found | _reached(policy, pipeline.summary.as_dict(0, 0.0))


def _reached(policy: Policy, summary: dict[str, Any]) -> dict[str, Any]:
    """Return t as the engine measures it, if the policy asks for it."""
    farthest = [one["max"] for one in summary.get("emd", {}).values() if one["max"] is not None]
    return {"t": max(farthest)} if policy.t is not None and farthest else {}


class _Run:
    """What a stream decides of a sample, block after block."""

    def __init__(self, sample: Sample, policy: Policy) -> None:
        self._sample = sample
        self._has_clock = sample.times_ms is not None and policy.require_stream().max_delay_s is not None
        self.arrived: list[int] = []
        self.members: list[Int64Vector] = []
        self.ends: list[int] = []
        self.texts: list[tuple[str, ...]] = []
        self.delays: list[Int64Vector] = []
        self.displacements: list[Int64Vector] = []
        self.seconds: list[Float64Vector] = []

    def arrive(self, offsets: Int64Vector) -> Any:  # noqa: ANN401 - an integer matrix
        """Return the expiry keys of records that arrive."""
        self.arrived += offsets.tolist()
        times = np.zeros(len(offsets))
        if self._has_clock and self._sample.times_ms is not None:
            times = self._sample.times_ms[np.searchsorted(self._sample.numbers, offsets)]
        return np.column_stack([times.astype(np.int64), offsets])

    def add(self, decisions: BlockDecisions) -> None:
        """Take the decisions on a block."""
        for cluster in decisions.clusters:
            self.members.append(np.array(cluster.offsets, np.int64))
            self.ends.append(len(cluster.offsets) + (self.ends[-1] if self.ends else 0))
            self.texts.append(cluster.centroid)
        if decisions.stats is None or not decisions.released:
            return
        self.delays.append(decisions.stats.delay)
        self.displacements.append(decisions.stats.displacement)
        if self._sample.times_ms is not None:
            arrived, numbers = np.array(self.arrived, np.int64), self._sample.numbers
            own = np.array(decisions.released, np.int64)
            newest = arrived[np.searchsorted(arrived, own) + decisions.stats.delay]
            first, last = (self._sample.times_ms[np.searchsorted(numbers, one)] for one in (own, newest))
            self.seconds.append((last - first) / 1000)


def _table(sample: Sample, policy: Policy) -> dict[str, Any]:
    table, start = TablePipeline(policy, JsonEncoder(policy)), 0
    for block, count in sample.blocks:
        for _, fault in table.find_oversized(block):
            raise InputError(fault)
        table.add(block, start)
        start += count
    release = table.release(AlgorithmSpec())
    summary = release.summary
    found: dict[str, Any] = {
        "records": len(sample.numbers),
        "released": summary["released"],
        "suppressed": summary["suppressed"],
        "loss": summary["mean_loss"],
        "losses": summary["loss"],
    }
    # Clusters with equal rows are told apart here, so the journalist's risk is not below what it is.
    texts: list[tuple[str, ...]] = [(str(number),) for number in range(len(release.bounds) - 1)]
    found |= _clusters(sample, release.offsets, release.bounds, texts)
    return found | {"linkage": summary["dld"]}


def _mean(losses: dict[str, float | None]) -> float | None:
    known = [loss for loss in losses.values() if loss is not None]
    return sum(known) / len(known) if known else None


def _clusters(
    sample: Sample, members: Int64Vector, bounds: Int64Vector, texts: list[tuple[str, ...]]
) -> dict[str, Any]:
    """Return the risks of clusters: ``members`` are numbers of records, cluster after cluster."""
    places = np.searchsorted(sample.numbers, members)
    sizes = np.diff(bounds)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    subjects = np.unique(sample.subjects[places], return_inverse=True)[1]
    people = people_of(labels, subjects)
    known: dict[tuple[str, ...], int] = {}
    groups = np.array([known.setdefault(text, len(known)) for text in texts], np.int64)
    alike = people_of(groups[labels], subjects).counts
    rows = np.bincount(groups, sizes)
    return {
        "smallest": int(people.counts.min()),
        "mean_size": float(people.counts.mean()),
        "prosecutor": float(1 / people.counts.min()),
        "prosecutor_mean": float((sizes / people.counts).sum() / sizes.sum()),
        "journalist": float(1 / alike.min()),
        "marketer": float(len(known) / sizes.sum()),
        "unique": int(np.count_nonzero(rows == 1)),
        **_disclosure(sample, places, labels, subjects),
    }


def _disclosure(sample: Sample, places: Int64Vector, labels: Int64Vector, subjects: Int64Vector) -> dict[str, Any]:
    """Return what clusters tell of confidential values: of each figure that of the attribute which is told most."""
    people, sizes = people_of(labels, subjects), np.bincount(labels)
    fewest, guesses, singles, farthest = [], [], [], []
    for codes in sample.confidential.values():
        values = CountedValues(codes[places], people)
        shares = values.largest / people.counts
        fewest.append(int(values.distinct.min()))
        guesses.append(float((shares * sizes).sum() / sizes.sum()))
        singles.append(float(sizes[shares == 1].sum() / sizes.sum()))
        bins = np.unique(codes[places], return_inverse=True)[1]
        if bins.max(initial=0) < MOST_VALUES:
            attribute = ConfidentialAttribute(bins.astype(np.int64), ordered=False)
            farthest.append(float(emd_of_clusters(attribute, labels.astype(np.int32), subjects).max()))
    if not fewest:
        return {}
    t = max(farthest) if farthest else None
    return {"l": min(fewest), "guess": max(guesses), "single": max(singles), "t": t}


def _linkage(
    sample: Sample, policy: Policy, members: Int64Vector, bounds: Int64Vector, texts: Sequence[tuple[str, ...]]
) -> float | None:
    """Return ``dld`` of a stream, of values as they are published; a missing value counts as the mean."""
    columns = [place for place, one in enumerate(policy.quasi_identifiers) if one.scale is not Scale.NOMINAL]
    if not columns:
        return None
    readers = published_values(policy, "jsonl", table=False, has_table_grids=False)
    rows = np.array([[readers[place].number_of(text[place]) for place in columns] for text in texts])
    sizes = np.diff(bounds)
    values = sample.values[np.searchsorted(sample.numbers, members)][:, columns]
    published = _filled(rows, np.repeat(rows, sizes, axis=0))
    return linkage_share(
        _filled(values, values), published, np.repeat(np.arange(len(sizes)), sizes).astype(np.int32), bounds
    )


def _filled(rows: Float64Matrix, known: Float64Matrix) -> Float64Matrix:
    """Return rows with the mean of a column of ``known`` for missing values."""
    present = ~np.isnan(known)
    means = np.where(present, known, 0.0).sum(axis=0) / np.maximum(present.sum(axis=0), 1)
    return np.where(np.isnan(rows), means, rows)
