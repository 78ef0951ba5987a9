"""What is said about a release by those who made it: evidence, references of the quarantine, the summary.

Nothing here is believed. Evidence is a witness to be checked; the rest are accounts to be balanced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

from shoal.audit.reading import FARTHEST, Pairs, byte_lines, json_value
from shoal.errors import InputError

__all__ = [
    "ClaimedCluster",
    "ClaimedReference",
    "Summary",
    "is_whole",
    "read_evidence",
    "read_quarantine",
    "read_summary",
]

Summary: TypeAlias = Mapping[str, Any]

_CLUSTER = ("partition", "cluster", "offsets")
_REFERENCE = ("topic", "partition", "offset", "reason")
_AGAIN = "write the evidence again with --evidence"


@dataclass(frozen=True, slots=True)
class ClaimedCluster:
    """A cluster as the evidence names it."""

    partition: int
    number: int
    offsets: tuple[int, ...]

    @property
    def place(self) -> int | str:
        """What to call it: its number, in a topic of many partitions after that of the partition."""
        return f"{self.partition}/{self.number}" if self.partition else self.number


@dataclass(frozen=True, slots=True)
class ClaimedReference:
    """A record that was not released, by reference; ``closed`` if it says no more than it may."""

    topic: str
    partition: int
    offset: int
    reason: str
    closed: bool


def read_evidence(path: Path) -> Iterator[ClaimedCluster]:
    """Clusters, one JSON line each.

    Raises
    ------
    InputError
        A line is not of the agreed shape. Offsets that do not exist are no matter of shape.
    """
    for number, line in enumerate(byte_lines(path), 1):
        place = f"{path}, line {number}"
        found = _object(line, place, _AGAIN)
        if found.keys() - set(_CLUSTER):
            raise InputError(f"{place}: must be {', '.join(_CLUSTER)} and nothing else; {_AGAIN}")
        offsets = found.get("offsets")
        if not isinstance(offsets, list) or isinstance(offsets, Pairs):
            raise InputError(f"{place}: offsets must be a list of integers; {_AGAIN}")
        if not all(is_whole(offset) for offset in offsets):
            raise InputError(f"{place}: offsets must be integers; {_AGAIN}")
        partition, cluster = (_integer(found, name, place, _AGAIN) for name in ("partition", "cluster"))
        yield ClaimedCluster(partition, cluster, tuple(offsets))


def read_quarantine(path: Path) -> Iterator[ClaimedReference]:
    """Read references to records that were not released, one JSON line each.

    Raises
    ------
    InputError
        A line is not of the agreed shape.
    """
    for number, line in enumerate(byte_lines(path), 1):
        place, again = f"{path}, line {number}", "export the quarantine again"
        found = _object(line, place, again)
        partition, offset = (_integer(found, name, place, again) for name in ("partition", "offset"))
        topic, reason = found.get("topic"), str(found.get("reason"))
        is_known = isinstance(topic, str) and reason in {"undecodable", "invalid", "suppressed", "too_large"}
        yield ClaimedReference(str(topic), partition, offset, reason, set(found) == set(_REFERENCE) and is_known)


def read_summary(source: Path | Summary) -> Summary:
    """One JSON object, from a file or as it is.

    Raises
    ------
    InputError
        Not a JSON object.
    """
    if isinstance(source, Mapping):
        return source
    again = "write the summary again with --summary"
    text = b"\n".join(byte_lines(source))
    return dict(_plain(_object(text, str(source), again)))


def _object(text: bytes, place: str, remedy: str) -> dict[str, object]:
    try:
        found = json_value(text)
    except ValueError:
        raise InputError(f"{place}: not JSON; {remedy}") from None
    if not isinstance(found, Pairs) or len(dict(found)) != len(found):
        raise InputError(f"{place}: not a JSON object with each name once; {remedy}")
    return dict(found)


def _integer(found: Mapping[str, object], name: str, place: str, remedy: str) -> int:
    value = found.get(name)
    if not is_whole(value):
        raise InputError(f"{place}: {name} must be an integer; {remedy}")
    return value


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is an integer, and none so large that only a mistake can have written it."""
    return type(value) is int and abs(value) < FARTHEST


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, Pairs | dict):
        return {name: _plain(item) for name, item in dict(value).items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
