"""What an audit is given beside original and release: the files that the run states, and what is to be judged."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.audit.evidence import EvidenceCluster, QuarantineReference, Summary
from shoal.policy import Policy

__all__ = ["AuditScope", "StatedFiles"]


@dataclass(frozen=True, slots=True)
class StatedFiles:
    """What the run states about its release; None where the file is not given.

    Attributes
    ----------
    evidence_clusters : list of EvidenceCluster or None
    references : list of QuarantineReference or None
    summary_fields : mapping or None
    summary_name : str
        What errors call the summary.
    """

    evidence_clusters: list[EvidenceCluster] | None
    references: list[QuarantineReference] | None
    summary_fields: Summary | None
    summary_name: str = "the summary"


@dataclass(frozen=True, slots=True)
class AuditScope:
    """What is judged, as the policy and the user of `verify` say; nothing of it comes from the judged files.

    Attributes
    ----------
    is_table, is_ordered : bool
        Whether the release is that of a finished table, or of a stream with ``release: ordered``.
    has_table_grids : bool
        Whether the default resolutions of tables apply.
    may_be_table : bool
        Whether the policy has a stream section and the user did not say which command made the release.
    is_partial, is_strict : bool
    window : int or None
        Offsets of a window of a stream, within which a clock has no trend: delta + 1. None for a table.
    """

    is_table: bool
    is_ordered: bool
    has_table_grids: bool
    may_be_table: bool
    is_partial: bool
    is_strict: bool
    window: int | None = None

    @classmethod
    def of(cls, policy: Policy, *, table: bool | None, partial: bool, strict: bool) -> AuditScope:
        """Return the scope. `shoal batch` publishes the resolutions of a stream if there is a stream section."""
        is_stream = policy.stream is not None and not table
        is_ordered = is_stream and policy.require_stream().is_ordered
        has_table_grids = policy.stream is None if table is None else table and policy.stream is None
        may_be_table = policy.stream is not None and table is None
        window = policy.require_stream().delta + 1 if is_stream else None
        return cls(not is_stream, is_ordered, has_table_grids, may_be_table, partial, strict, window)
