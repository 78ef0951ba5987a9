"""Sections of a resolved policy, and where it was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from shoal.policy.diversity import resolve_diversity
from shoal.policy.loader import FieldPath, line_of
from shoal.policy.rule_choice import explain_rule, resolve_rule
from shoal.policy.schema import PerSubjectSection, PrivacySection, StreamSection

__all__ = [
    "DEFAULT_MAX_VALUE_SHARE",
    "Origin",
    "PerSubject",
    "Stream",
    "optional_float",
    "resolve_per_subject",
    "resolve_stream",
    "resolve_value_share",
]

DEFAULT_MAX_VALUE_SHARE = 0.5
"""With distinct l-diversity, also in Python. Without a limit, sizes of clusters and suppressed records can reveal the
common value.
"""


@dataclass(frozen=True, slots=True)
class Stream:
    """The resolved section ``stream``.

    Attributes
    ----------
    delta : int
        Maximum delay in records.
    max_delay_s : float or None
        Maximum delay in seconds.
    rule : str
        The rule that forms clusters; never ``auto``.
    release : {"cluster", "ordered"}
        Whether whole clusters are released, or single records in the order of the input.
    reveal_order : bool
        For ordered release: whether each record keeps its own confidential values.
    reason : str
        Why ``auto`` selected the rule; empty if the policy names the rule. For information only.
    """

    delta: int
    max_delay_s: float | None
    rule: str
    release: Literal["cluster", "ordered"]
    reveal_order: bool = False
    reason: str = ""

    @property
    def is_ordered(self) -> bool:
        """Whether each record is released when its own delay has passed, in the order of the input."""
        return self.release == "ordered"


@dataclass(frozen=True, slots=True)
class PerSubject:
    """At most ``max`` records of one subject are released per window.

    Window j of a partition consists of its offsets from ``j * window`` to ``(j + 1) * window - 1``. In files, record
    numbers take the place of offsets.
    """

    max: int
    window: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a policy was read; only for messages.

    Attributes
    ----------
    source : str
        The file.
    lines : mapping
        Line (from 1) of each field, by path.
    """

    source: str
    lines: Mapping[FieldPath, int] = field(default_factory=dict)

    def line_of(self, path: FieldPath) -> int | None:
        """Return the line of a field, or of the nearest enclosing field that has a line."""
        return line_of(path, self.lines)


def resolve_stream(section: StreamSection | None, privacy: PrivacySection) -> Stream | None:
    """Return the section with its defaults; None without one."""
    if section is None or section.delta is None or privacy.k is None:
        return None
    options = {
        "has_dominance": privacy.dominance is not None,
        "protects_values": privacy.t is not None
        or resolve_diversity(privacy.l) is not None
        or resolve_value_share(privacy) is not None,
    }
    rule = resolve_rule(section.rule, privacy.k, **options)
    reason = explain_rule(section.rule, privacy.k, **options)
    limit = optional_float(section.max_delay_s)
    return Stream(section.delta, limit, rule, section.release, section.reveal_order, reason)


def resolve_value_share(privacy: PrivacySection) -> float | None:
    """Return the largest share of a confidential value; with distinct l-diversity, 0.5 is the default.

    Without l and t, a share of 1 is no limit, so that such a policy does not count as one that protects values.
    """
    diversity = resolve_diversity(privacy.l)
    if privacy.max_value_share == 1 and diversity is None and privacy.t is None:
        return None
    if privacy.max_value_share is None and diversity is not None and diversity.kind == "distinct":
        return DEFAULT_MAX_VALUE_SHARE
    return optional_float(privacy.max_value_share)


def optional_float(value: float | None) -> float | None:
    """Return a number as float; None stays."""
    return None if value is None else float(value)


def resolve_per_subject(section: PerSubjectSection | None) -> PerSubject | None:
    """Return the quota; None without a section."""
    if (
        section is None or section.max is None or section.window is None
    ):  # `check_document` reports an incomplete section
        return None
    return PerSubject(section.max, section.window)
