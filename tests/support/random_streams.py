"""Random streams of numbers, ranks, categories and times under random policies, run in parts and with restarts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from shoal.arrays import BoolVector, Int64Matrix
from shoal.formats import JsonEncoder
from shoal.policy import Attribute, Policy, Role, Scale, TimeStep
from shoal.streams import AdaptiveState, BlockDecisions, PartitionPipeline
from support.scales import AREAS, attribute, block_of, policy_with

HOUR = 3_600_000.0
START = 1_700_000_000_000.0
OFFSET = 1
Row: TypeAlias = list[Any]


@dataclass
class Result:
    """What a stream decided: clusters as offsets and published texts, suppressed offsets, and the state at the end."""

    clusters: list[tuple[int, list[int], tuple[str, ...]]]
    suppressed: list[int]
    state: bytes


@dataclass(frozen=True)
class RandomStream:
    """A policy and its records: rows, subjects and expiry keys. The stream is flushed once, after so many records."""

    policy: Policy
    rows: list[Row]
    subjects: list[int]
    keys: Int64Matrix
    flushed_after: int

    def __len__(self) -> int:
        return len(self.rows)

    def whole(self, cuts: Sequence[int] = ()) -> Result:
        """Run the stream in blocks that end at ``cuts``."""
        return self.restarted((), cuts)

    def restarted(self, stops: Sequence[int], cuts: Sequence[int] = ()) -> Result:
        """Run the stream; after each of ``stops`` records, continue in a new pipeline from what was committed."""
        found: list[BlockDecisions] = []
        is_undecided = np.ones(len(self), np.bool_)
        pipeline = PartitionPipeline(self.policy, JsonEncoder(self.policy))
        for start, stop in pairwise((0, *stops, len(self))):
            if start:
                pipeline = self._resumed(pipeline)
                first = min([*np.flatnonzero(is_undecided[:start]).tolist(), start])
                again = self._push(pipeline, (first, start), cuts, is_undecided)
                assert not any(part.clusters or part.suppressed for part in again), "decided while it was read again"
            parts = self._push(pipeline, (start, stop), cuts, is_undecided, may_flush=True)
            for part in parts:
                places = [offset for cluster in part.clusters for offset in cluster.offsets] + part.suppressed
                is_undecided[np.searchsorted(self.keys[:, OFFSET], places)] = False
            found += parts
        found.append(pipeline.flush())
        return Result(
            [(cluster.number, cluster.offsets, cluster.centroid) for part in found for cluster in part.clusters],
            [offset for part in found for offset in part.suppressed],
            pipeline.adaptive_state.to_bytes(self.policy),
        )

    def _resumed(self, pipeline: PartitionPipeline) -> PartitionPipeline:
        """Return a pipeline in the state that another one commits."""
        data = pipeline.adaptive_state.to_bytes(self.policy)
        return PartitionPipeline(
            self.policy,
            JsonEncoder(self.policy),
            next_cluster_number=pipeline.next_cluster_number,
            adaptive_state=AdaptiveState.from_bytes(data, self.policy),
        )

    def _push(
        self,
        pipeline: PartitionPipeline,
        part: tuple[int, int],
        cuts: Sequence[int],
        is_undecided: BoolVector,
        *,
        may_flush: bool = False,
    ) -> list[BlockDecisions]:
        """Push the records of a part in blocks, and flush where the stream is flushed."""
        (first, end), found = part, []
        between = {cut for cut in (*cuts, self.flushed_after) if first < cut < end}
        for start, stop in pairwise((first, *sorted(between), *([end] if end > first else []))):
            block = replace(block_of(self.policy, self.rows[start:stop]), subjects=np.array(self.subjects[start:stop]))
            found.append(pipeline.push(block, self.keys[start:stop], is_undecided[start:stop].copy()))
            if may_flush and stop == self.flushed_after:
                found.append(pipeline.flush())
        return found


def random_stream(random: np.random.Generator, rules: Sequence[str], most: int = 70) -> RandomStream:
    """Return a random stream under one of the rules, with up to ``most`` records."""
    count, k = int(random.integers(1, most + 1)), int(random.integers(2, 5))
    columns = _random_columns(random, count)
    chosen = sorted(random.permutation(len(columns))[: random.integers(1, len(columns) + 1)].tolist())
    if all(columns[number][0].role is Role.STEERING for number in chosen):
        chosen = [0, *chosen]
    attributes = [columns[number][0] for number in chosen]
    # As in a policy, steering attributes come last.
    chosen.sort(key=lambda number: columns[number][0].role is Role.STEERING)
    delta = k - 1 + int(random.integers(0, 16))
    targets: list[Any] = [0.0, 0.02, {"target_span": 3.0}]
    people = [count, 3 * k, max(k + 1, count // 3)][random.integers(3)]
    policy = policy_with(
        *sorted(attributes, key=lambda one: one.role is Role.STEERING),
        k=k,
        privacy={
            "k": k,
            "max_share": float(random.choice([0.5, 1.0])),
            "min_population": [None, k if delta >= k else None][random.integers(2)],
        },
        stream={"delta": delta, "rule": str(random.choice(rules)), "max_delay_s": [None, 30.0][random.integers(2)]},
        steering={"position": targets[random.integers(3)], "scaling": "spreads"},
    )
    offsets = np.cumsum(random.choice([1, 1, 1, 2, 7], count))
    times = np.cumsum(random.choice([0, 0, 1000, 4000, 20_000], count))
    return RandomStream(
        policy=policy,
        rows=[list(row) for row in zip(*(columns[number][1] for number in chosen), strict=True)],
        subjects=random.integers(0, people, count).tolist() if people < count else list(range(count)),
        keys=np.column_stack([times, offsets]).astype(np.int64),
        flushed_after=int(random.integers(1, 2 * count + 1)),
    )


def _random_columns(random: np.random.Generator, count: int) -> list[tuple[Attribute, list[Any]]]:
    """Return attributes of each scale with the values of all records, None where one is missing."""

    def missing(values: Sequence[Any], name: str | None = None) -> tuple[str, list[Any]]:
        rule = name or str(random.choice(["quarantine", "group", "mean"]))
        share = 0.0 if rule == "quarantine" else float(random.choice([0.0, 0.3, 0.9]))
        return rule, [None if random.random() < share else value for value in values]

    def number(name: str, low: float, high: float, **more: Any) -> tuple[Attribute, list[Any]]:
        values = (
            np.rint(random.random(count) * (high - low) + low)
            if random.random() < 0.5
            else random.normal(0, high, count)
        )
        rule, present = missing(np.clip(values, *more["bounds"]).tolist() if "bounds" in more else values.tolist())
        return attribute(name, Scale.NUMERIC, missing=rule, weight=float(random.choice([1.0, 2.5])), **more), present

    def time(name: str, values: Any, **more: Any) -> tuple[Attribute, list[Any]]:
        rule, present = missing(values.tolist())
        return attribute(name, Scale.TIME, missing=rule, time_step=TimeStep(1, "h"), **more), present

    def nominal(name: str, texts: Sequence[str], **more: Any) -> tuple[Attribute, list[Any]]:
        rule, present = missing(random.choice(texts, count).tolist(), str(random.choice(["quarantine", "group"])))
        return attribute(name, Scale.NOMINAL, missing=rule, **more), present

    rule, grades = missing(random.integers(0, 4, count).tolist())
    clock = START + HOUR * np.cumsum(random.choice([0.0, 0.1, 1.0, 30.0], count))
    areas = ['"AK"', '"CA"', '"NY"', '"MA"', '"XX"']
    return [
        number("free", -1.0, 1e6),
        number("age", 0.0, 100.0, bounds=(0.0, 100.0), integer=True),
        number("loose", 0.0, 3.0, bounds=(0.0, 1e9)),
        (attribute("grade", Scale.ORDINAL, order=tuple("abcd"), missing=rule), grades),
        time("at", clock),
        time("born", START - 1e5 * HOUR * random.random(count), bounds=(0.0, 2 * START)),
        nominal("sex", ['"F"', '"M"', "true"]),
        nominal("area", areas, taxonomy=AREAS, publish="ancestor"),
        nominal("home", areas, taxonomy=AREAS, publish="median"),
        (
            attribute("ward", Scale.NUMERIC, role=Role.STEERING, bounds=(0.0, 9.0)),
            random.integers(0, 9, count).tolist(),
        ),
    ]
