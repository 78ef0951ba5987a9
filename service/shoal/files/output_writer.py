"""What leaves a file: rows, evidence and references, each once it is decided; and how long records have waited."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from shoal.files.outputs import RowSink
from shoal.pipeline import BlockDecisions, ReleaseStrategy
from shoal.records import Reason, RecordEncoder

__all__ = ["Clock", "OutputWriter", "evidence_of", "references_to"]


def evidence_of(clusters: Iterable[tuple[int, list[int]]]) -> bytes:
    """Return lines that say which records (their places) formed which cluster (its number)."""
    return msgspec.json.Encoder().encode_lines(
        [{"partition": 0, "cluster": number, "offsets": places} for number, places in clusters]
    )


def references_to(topic: str, refused: Iterable[tuple[int, str]]) -> bytes:
    """Return lines that name records that are not published, by their places, and why."""
    return msgspec.json.Encoder().encode_lines(
        [{"topic": topic, "partition": 0, "offset": place, "reason": why} for place, why in refused]
    )


@dataclass(frozen=True, slots=True)
class OutputWriter:
    """Writes outcomes.

    Parameters
    ----------
    encoder : RecordEncoder
        Of the rows.
    target, evidence, quarantine : Sink or None
        Where rows, members of clusters, and references go.
    topic : str
        What references call the input.
    release : ReleaseStrategy
        How the records of a cluster leave.

    Notes
    -----
    Guarantee: a row is written after the evidence of its cluster. The rows of a cluster that leaves as a whole are
    written in one call.
    """

    encoder: RecordEncoder
    target: RowSink
    evidence: RowSink | None
    quarantine: RowSink | None
    topic: str
    release: ReleaseStrategy

    def write(self, outcome: BlockDecisions, refused: Sequence[tuple[int, str]] = ()) -> None:
        """Write clusters, and references to the records that are not published (place and reason)."""
        for clusters, rows in self.release.writes(outcome):
            # Evidence first: a row that is in the output must be in the evidence, wherever the process is stopped.
            for cluster in clusters:
                if self.evidence is not None:
                    self.evidence.write(evidence_of([(cluster.number, cluster.places)]))
            if rows:
                self.target.write(self.encoder.encode_lines(rows))
        told = [*refused, *((place, Reason.SUPPRESSED.value) for place in outcome.suppressed)]
        if self.quarantine is not None and told:
            self.quarantine.write(references_to(self.topic, told))


class Clock:
    """When records that are still held were read.

    Parameters
    ----------
    max_delay_s : float or None
        How long one may be held; None: for ever.
    """

    def __init__(self, max_delay_s: float | None) -> None:
        self._max_delay_s = max_delay_s
        self._read: dict[int, float] = {}

    def read(self, places: Iterable[int]) -> int:
        """Note that these were read now; return the time in ms, by a clock that never goes back."""
        now = time.monotonic()
        if self._max_delay_s is not None:
            self._read.update(dict.fromkeys(places, now))
        return round(now * 1000)

    def forget(self, outcome: BlockDecisions) -> None:
        """Note that these are held no more."""
        for place in (*outcome.suppressed, *outcome.released):
            self._read.pop(place, None)

    def is_overdue(self) -> bool:
        """Whether the oldest has waited for as long as it may."""
        if self._max_delay_s is None or not self._read:
            return False
        return time.monotonic() - next(iter(self._read.values())) >= self._max_delay_s
