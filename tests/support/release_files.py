"""A release that a test falsifies before the judge sees it: clusters, rows, evidence, summary and references."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.audit import verify
from shoal.errors import InputError
from shoal.policy import Policy
from support.base_releases import Base, compose
from support.making import policy_of


@dataclass(frozen=True)
class Judgement:
    """Exit code of `shoal verify`, and the checks that failed; for an unusable input the word "refused"."""

    code: int
    checks: tuple[str, ...]
    text: str
    early_decisions: int | None = None


def judge_files(
    document: dict[str, Any], folder: Path, files: Mapping[str, str | bytes], *, strict: bool = False
) -> Judgement:
    """Write files into a folder, each named by its role, and return what the judge says."""
    paths: dict[str, Path] = {}
    for name, content in files.items():
        paths[name.split(".")[0]] = folder / name
        encoded = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
        (folder / name).write_bytes(encoded)
    given = (paths["original"], paths["released"], paths.get("evidence"), paths.get("summary"))
    try:
        verdict = verify(policy_of(**document), *given, quarantine=paths.get("quarantine"), strict=strict)
    except InputError as error:
        return Judgement(2, ("refused",), str(error))
    broken = tuple(check.name for check in verdict.checks if check.status == "broken")
    checks = broken or ("undecided",) * (verdict.exit_code == 2)
    return Judgement(verdict.exit_code, checks, verdict.text(verbose=True), verdict.early_decisions)


@dataclass
class ReleaseFiles:
    """A falsified release.

    ``clusters`` are indexes of records. Afterwards each file can be changed alone; one that is None is not given to
    the judge.
    """

    base: Base
    clusters: list[list[int]]
    rows: list[list[str]] = field(default_factory=list)
    evidence: list[str] | None = None
    summary: dict[str, Any] | str | None = None
    quarantine: list[str] | None = None
    document: dict[str, Any] = field(default_factory=dict)
    suffix: str = "jsonl"
    released: bytes | None = None
    strict: bool = False

    @classmethod
    def of(cls, base: Base) -> ReleaseFiles:
        """Return the sound release of a base."""
        release = cls(base, [list(members) for members in base.clusters], document=dict(base.document))
        release.suffix = "csv" if base.is_csv else "jsonl"
        release.recompose()
        return release

    def recompose(self) -> None:
        """Make all files of the clusters. A record that is in no cluster is listed as suppressed."""
        self.rows = compose(self.base, self.clusters)
        # In one transaction of a topic clusters are sorted by their bytes; their numbers tell the order of decision.
        decided = sorted(self.clusters, key=min) if self.base.is_topic else self.clusters
        self.evidence = [self.evidence_line(number, members) for number, members in enumerate(decided)]
        released = {index for members in self.clusters for index in members}
        unpublished = [index for index in range(len(self.base.records)) if index not in released]
        self.quarantine = [self.reference(index) for index in unpublished]
        self.summary = None if self.base.is_topic else self._summary(unpublished)

    def evidence_line(self, number: int, members: Sequence[int]) -> str:
        """Return a line of evidence."""
        partition = self.base.places[members[0]][0] if members else 0
        offsets = [self.base.places[index][1] for index in members]
        return json.dumps({"partition": partition, "cluster": number, "offsets": sorted(offsets)})

    def reference(self, index: int, reason: str | None = None) -> str:
        """Return a line of the quarantine file; by default with the reason that is true, or suppression."""
        partition, offset = self.base.places[index]
        usual = "suppressed" if self.base.records[index] is not None else self._fault(index)
        return json.dumps({"topic": "in", "partition": partition, "offset": offset, "reason": reason or usual})

    def _fault(self, index: int) -> str:
        """Return what is wrong with a line that is no record: it is JSON or cells, or not."""
        if self.base.is_csv:
            return "invalid"
        text = self.base.original.splitlines()[index].decode()
        try:
            value = json.loads(text)
            if self.base.is_topic:
                json.loads(value["value"] or "")
        except ValueError:
            return "undecodable"
        return "invalid"

    def _summary(self, unpublished: Sequence[int]) -> dict[str, Any]:
        sizes = [len(members) for members in self.clusters] or [0]
        people = [{self.base.record(index)["patient"] for index in members} for members in self.clusters]
        bad = sum(self.base.records[index] is None for index in unpublished)
        count, released = len(self.base.records), sum(sizes)
        suppressed = len(unpublished) - bad
        told: dict[str, Any] = {
            "clusters": len(self.clusters),
            "cluster_size": {"min": min(sizes), "mean": sum(sizes) / len(sizes), "max": max(sizes)},
            "subjects": {"min": min(map(len, people), default=0)},
            "share": {"max": None},
        }
        if self.base.is_table:
            return told | {"records": count, "released": released, "suppressed": suppressed, "keep_order": False}
        undecodable = sum(self._fault(index) == "undecodable" for index in unpublished if not self.base.records[index])
        faults = {"undecodable": undecodable, "invalid": bad - undecodable}
        return told | {
            "records_in": count,
            "released": released,
            "suppressed": {"suppressed": suppressed} if suppressed else {},
            "quarantined": {name: number for name, number in faults.items() if number},
            "held": 0,
        }

    # ---------------------------------------------------------------- files

    def released_bytes(self) -> bytes:
        """Return the released file."""
        if self.released is not None:
            return self.released
        if self.base.is_topic:
            texts = [
                json.dumps({"partition": self.partition_of(place), "value": row}, ensure_ascii=False)
                for place, rows in enumerate(self.rows)
                for row in rows
            ]
        else:
            texts = [",".join(self.base.fields)] * self.base.is_csv + [row for rows in self.rows for row in rows]
        return "".join(f"{text}\n" for text in texts).encode("utf-8", "surrogateescape")

    def partition_of(self, place: int) -> int:
        """Return the partition of a list of rows: those of a cluster, or of an ordered release those of a partition."""
        if self.base.is_ordered:
            return place
        members = self.clusters[place] if place < len(self.clusters) else []
        return self.base.places[members[0]][0] if members else 0

    @property
    def policy(self) -> Policy:
        """The policy that the judge is given."""
        return policy_of(**self.document)

    def judged(self, folder: Path) -> Judgement:
        """Write the files into a folder, and return what the judge says."""
        summary = json.dumps(self.summary) if isinstance(self.summary, dict) else self.summary
        side_files = {
            "evidence.jsonl": self.evidence,
            "quarantine.jsonl": self.quarantine,
            "summary.json": None if summary is None else [summary],
        }
        files: dict[str, str | bytes] = {
            f"original.{'csv' if self.base.is_csv else 'jsonl'}": self.base.original,
            f"released.{self.suffix}": self.released_bytes(),
        }
        for name, lines in side_files.items():
            if lines is not None:
                files[name] = "".join(f"{line}\n" for line in lines)
        return judge_files(self.document, folder, files, strict=self.strict)
