"""The outputs of a stream: rows, evidence and references, each written as soon as it is decided."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from shoal.files.outputs import RowSink
from shoal.pipeline import BlockDecisions, ReleaseStrategy
from shoal.records import Reason, RecordEncoder

__all__ = ["HoldTimer", "OutputWriter", "encode_evidence", "encode_references"]


def encode_evidence(clusters: Iterable[tuple[int, list[int]]], fingerprint: str) -> bytes:
    """Return one JSON line for each cluster: its number, the offsets of its members, the fingerprint of the policy."""
    return msgspec.json.Encoder().encode_lines(
        [{"partition": 0, "cluster": number, "offsets": offsets, "policy": fingerprint} for number, offsets in clusters]
    )


def encode_references(topic: str, unpublished: Iterable[tuple[int, str]]) -> bytes:
    """Return one JSON line for each record that is not published: its offset and the reason."""
    return msgspec.json.Encoder().encode_lines(
        [{"topic": topic, "partition": 0, "offset": offset, "reason": reason} for offset, reason in unpublished]
    )


@dataclass(frozen=True, slots=True)
class OutputWriter:
    """Writes the decisions of a stream.

    Attributes
    ----------
    encoder : RecordEncoder
        Encoder of the rows.
    target, evidence, quarantine : RowSink or None
        Outputs of the rows, of the members of clusters, and of references to unpublished records; None: not written.
    topic : str
        Name of the input in references.
    release : ReleaseStrategy
        How the records of a cluster are released.

    Notes
    -----
    Guarantee: a row is written after the evidence of its cluster. All rows of a cluster that is released as a whole are
    written by one call.
    """

    encoder: RecordEncoder
    target: RowSink
    evidence: RowSink | None
    quarantine: RowSink | None
    topic: str
    release: ReleaseStrategy

    def write(self, decisions: BlockDecisions, rejected: Sequence[tuple[int, str]] = ()) -> None:
        """Write the decisions on a block, and references to its rejected records (offset and reason)."""
        for clusters, rows in self.release.writes(decisions):
            # Evidence first: every row in the output has evidence, even if the process is stopped in between.
            for cluster in clusters:
                if self.evidence is not None:
                    self.evidence.write(encode_evidence([(cluster.number, cluster.offsets)], cluster.policy))
            if rows:
                self.target.write(self.encoder.encode_lines(rows))
        unpublished = [*rejected, *((offset, Reason.SUPPRESSED.value) for offset in decisions.suppressed)]
        if self.quarantine is not None and unpublished:
            self.quarantine.write(encode_references(self.topic, unpublished))


class HoldTimer:
    """Measures how long records have been held.

    Parameters
    ----------
    max_delay_s : float or None
        Longest time in seconds; None: no limit.
    """

    def __init__(self, max_delay_s: float | None) -> None:
        self._max_delay_s = max_delay_s
        self._read_at: dict[int, float] = {}

    def start(self, offsets: Iterable[int]) -> int:
        """Start the time of records that are read now; return the time in ms, from a monotonic clock."""
        now = time.monotonic()
        if self._max_delay_s is not None:
            self._read_at.update(dict.fromkeys(offsets, now))
        return round(now * 1000)

    def stop(self, decisions: BlockDecisions) -> None:
        """Stop the time of records that are released or suppressed."""
        for offset in (*decisions.suppressed, *decisions.released):
            self._read_at.pop(offset, None)

    def is_overdue(self) -> bool:
        """Whether the oldest held record has reached the limit."""
        if self._max_delay_s is None or not self._read_at:
            return False
        return time.monotonic() - next(iter(self._read_at.values())) >= self._max_delay_s
