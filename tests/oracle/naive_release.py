"""A release computed in plain Python, without the engine: clusters by sorting, means with fractions."""

from __future__ import annotations

import csv
import io
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from shoal.audit import Verdict, verify
from shoal.policy import Policy

POLICY = """
attributes:
  patient:   {role: identifier, subject: true}
  diagnosis: {role: confidential, type: string}
  age:       {role: quasi_identifier, bounds: [0, 110], integer: true}
  income:    {role: quasi_identifier, bounds: [0, 100000], resolution: 500}
  dose:      {role: quasi_identifier, bounds: [-2, 2], resolution: 0.05}
  ward:      {role: other, type: any, publish_unchanged: true}
privacy: {k: 5, max_share: 0.5}
stream: {delta: 1000}
"""
RESOLUTIONS = {"age": Fraction(1), "income": Fraction(500), "dose": Fraction(1, 20)}
DECIMALS = {"age": 0, "income": 0, "dose": 2}
BOUNDS = {"age": (0, 110), "income": (0, 100000), "dose": (-2, 2)}
K = 5

Record = dict[str, Any]


def load_policy(folder: Path, text: str = POLICY) -> Policy:
    path = folder / "policy.yaml"
    path.write_text(text, encoding="utf-8")
    return Policy.load(path)


def make_records(n: int, seed: int = 0, subjects: int | None = None) -> list[Record]:
    rng = random.Random(seed)
    return [
        {
            "patient": f"p{rng.randrange(subjects or 3 * n)}",
            "diagnosis": f"d{number}-é",
            "age": rng.randrange(-5, 120),
            "income": rng.randrange(0, 120000) / 4,
            "dose": round(rng.uniform(-2.5, 2.5), 3),
            "ward": rng.choice([None, True, 1, 1.5, "1", "a,b"]),
        }
        for number in range(n)
    ]


def group(records: Sequence[Record], k: int = K) -> list[list[int]]:
    """Group records by age: a cluster ends at k subjects if none owns more than half; the rest joins the last.

    The clusters are in the order of their first records, in which a stream decides them.
    """
    order = sorted(range(len(records)), key=lambda index: (records[index]["age"], index))
    found: list[list[int]] = [[]]
    for index in order:
        if _is_full([records[member]["patient"] for member in found[-1]], k):
            found.append([])
        found[-1].append(index)
    if len(found) > 1 and not _is_full([records[member]["patient"] for member in found[-1]], k):
        rest = found.pop()
        # A record that the last cluster cannot take is suppressed.
        for index in rest:
            if _is_full([records[member]["patient"] for member in [*found[-1], index]], k):
                found[-1].append(index)
    return sorted(found, key=min)


def _is_full(subjects: list[str], k: int) -> bool:
    counts = Counter(subjects)
    return len(counts) >= k and 2 * max(counts.values()) <= len(subjects)


def centroid(records: Sequence[Record], members: Sequence[int], name: str) -> str:
    low, high = BOUNDS[name]
    clipped = [Fraction(min(max(records[index][name], low), high)) for index in members]
    steps = round(sum(clipped) / len(clipped) / RESOLUTIONS[name])
    value = steps * RESOLUTIONS[name]
    exact = Decimal(value.numerator) / Decimal(value.denominator)
    return str(exact.quantize(Decimal(1).scaleb(-DECIMALS[name]), ROUND_HALF_EVEN)).replace("-0.00", "0.00")


def row_text(record: Record, shown: dict[str, str]) -> str:
    parts = [
        '"diagnosis":' + json.dumps(record["diagnosis"], ensure_ascii=False),
        *(f'"{name}":{shown[name]}' for name in ("age", "income", "dose")),
        '"ward":' + json.dumps(record["ward"], ensure_ascii=False),
    ]
    return "{" + ",".join(parts) + "}"


def row_cells(record: Record, shown: dict[str, str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(
        [record["diagnosis"], shown["age"], shown["income"], shown["dose"], record["ward"]]
    )
    return text.getvalue()


@dataclass
class NaiveRelease:
    """Original, release, evidence and summary, which a test changes before it verifies them."""

    folder: Path
    records: list[Record]
    clusters: list[list[int]]
    csv: bool = False
    rows: list[list[str]] = field(default_factory=list)
    evidence: list[Any] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    original_lines: list[str] | None = None
    policy: str = POLICY

    def __post_init__(self) -> None:
        self.regenerate()

    def regenerate(self) -> None:
        """Compute rows, evidence and summary of the current clusters."""
        make = row_cells if self.csv else row_text
        self.rows = []
        for members in self.clusters:
            shown = {name: centroid(self.records, members, name) for name in BOUNDS}
            self.rows.append(sorted((make(self.records[index], shown) for index in members), key=str.encode))
        self.evidence = [
            {"partition": 0, "cluster": number, "offsets": list(group)} for number, group in enumerate(self.clusters)
        ]
        sizes = [len(members) for members in self.clusters]
        subjects = [{self.records[index]["patient"] for index in members} for members in self.clusters]
        self.summary = {
            "records_in": len(self.records),
            "released": sum(sizes),
            "suppressed": {"too_few": len(self.records) - sum(sizes)},
            "quarantined": {},
            "held": 0,
            "clusters": len(self.clusters),
            "cluster_size": {"min": min(sizes), "mean": sum(sizes) / len(sizes), "max": max(sizes)},
            "subjects": {"min": min(map(len, subjects))},
            "share": {"max": None},
        }

    def write(self) -> dict[str, Path]:
        """Write the files."""
        suffix = "csv" if self.csv else "jsonl"
        header = ["diagnosis,age,income,dose,ward"] if self.csv else []
        lines = {
            f"original.{suffix}": self._original(),
            f"released.{suffix}": [*header, *(row for rows in self.rows for row in rows)],
            "evidence.jsonl": [line if isinstance(line, str) else json.dumps(line) for line in self.evidence],
            "summary.json": [json.dumps(self.summary)],
        }
        for name, texts in lines.items():
            (self.folder / name).write_bytes("".join(f"{text}\n" for text in texts).encode("utf-8", "surrogateescape"))
        return {name.split(".")[0]: self.folder / name for name in lines}

    def _original(self) -> list[str]:
        if self.original_lines is not None:
            return self.original_lines
        if not self.csv:
            return [json.dumps(record) for record in self.records]
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.records)
        return text.getvalue().splitlines()

    def verify(self, *, evidence: bool = True, summary: bool = False, **options: Any) -> Verdict:
        """Write the files and verify them."""
        paths = self.write()
        return verify(
            load_policy(self.folder, self.policy),
            paths["original"],
            paths["released"],
            paths["evidence"] if evidence else None,
            paths["summary"] if summary else None,
            **options,
        )


def make_release(
    folder: Path, n: int = 60, *, seed: int = 0, subjects: int | None = None, csv: bool = False
) -> NaiveRelease:
    records = make_records(n, seed, subjects)
    return NaiveRelease(folder, records, group(records), csv=csv)


def broken(verdict: Verdict) -> set[str]:
    return {check.name for check in verdict.checks if check.status == "broken"}
