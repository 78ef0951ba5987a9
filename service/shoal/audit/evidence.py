"""Reads what a run states about its release: evidence, references of the quarantine, the summary. None is trusted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from shoal.audit.fields import Int64Vector
from shoal.audit.reading import (
    LARGEST_COUNT,
    JsonObject,
    as_record,
    byte_lines,
    decoded_lines,
    json_value,
    line_blocks,
    within_depth,
)
from shoal.errors import InputError
from shoal.policy import Policy

Summary: TypeAlias = Mapping[str, Any]
_CLUSTER_FIELDS = ("partition", "cluster", "offsets", "policy", "topic")
_COUNT = "-?(?:0|[1-9][0-9]{0,17})"
_CLUSTER = re.compile(
    rf'^(?:\{{"partition":({_COUNT}),"cluster":({_COUNT}),"offsets":\[((?:{_COUNT}(?:,{_COUNT})*)?)\]'
    r'(?:,"policy":("[0-9a-f]{64}"))?(?:,"topic":("[^"\\\x00-\x1f]*"))?\}|(.*))$',
    re.MULTILINE,
)
"""A line as a run writes it, or any other one."""
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_REFERENCE_FIELDS = ("topic", "partition", "offset", "reason")
REASONS = {"undecodable", "invalid", "suppressed", "too_large"}
_EVIDENCE_REMEDY = "write the evidence again with --evidence"
_QUARANTINE_REMEDY = "export the quarantine again"
_SUMMARY_REMEDY = "write the summary again with --summary"


@dataclass(frozen=True, slots=True)
class EvidenceCluster:
    """A cluster as the evidence names it: its number and the offsets of its members."""

    partition: int
    number: int
    offsets: Int64Vector
    fingerprint: str | None = None  # of the policy; None in evidence of versions that did not write it
    topic: str | None = None  # the input; None in evidence of one input

    @property
    def label(self) -> int | str:
        """How checks name it: its number, in partitions other than 0 as "partition/number"."""
        return f"{self.partition}/{self.number}" if self.partition else self.number


@dataclass(frozen=True, slots=True)
class QuarantineReference:
    """A reference to a record that was not released; well-formed: exactly the four fields, with a known reason."""

    topic: str
    partition: int
    offset: int
    reason: str
    is_wellformed: bool


def _read_evidence(path: Path) -> Iterator[EvidenceCluster]:
    """Yield the clusters; lines as a run writes them are read many at a time."""
    number = 1
    for block in line_blocks(path, skip_bom=False):
        text = decoded_lines(block)
        rows: list[tuple[str, ...]] = [] if text is None else _CLUSTER.findall(text)
        if not rows or any(row[-1] or not row[0] for row in rows):
            yield from (_cluster(line, f"{path}, line {place}") for place, line in enumerate(block, number))
        else:
            yield from _clusters(rows)
        number += len(block)


def _clusters(rows: Sequence[tuple[str, ...]]) -> Iterator[EvidenceCluster]:
    every = ",".join(filter(None, (row[2] for row in rows)))
    offsets = np.array(every.split(",") if every else [], np.int64)
    start = 0
    for partition, cluster, named, fingerprint, topic, _ in rows:
        stop = start + (named.count(",") + 1 if named else 0)
        names = (intern(name[1:-1]) if name else None for name in (fingerprint, topic))
        yield EvidenceCluster(int(partition), int(cluster), offsets[start:stop], *names)
        start = stop


def _cluster(line: bytes, location: str) -> EvidenceCluster:
    found = _object(line, location, _EVIDENCE_REMEDY)
    if found.keys() - set(_CLUSTER_FIELDS):
        raise InputError(
            f"{location}: must be partition, cluster, offsets (and policy, topic) and nothing else; {_EVIDENCE_REMEDY}"
        )
    topic = found.get("topic")
    if not isinstance(topic, str) and "topic" in found:
        raise InputError(f"{location}: topic must be a text; {_EVIDENCE_REMEDY}")
    offsets = found.get("offsets")
    if isinstance(offsets, JsonObject) or not isinstance(offsets, list) or not all(map(is_count, offsets)):
        raise InputError(f"{location}: offsets must be a list of integers; {_EVIDENCE_REMEDY}")
    partition, cluster = (_integer(found, name, location, _EVIDENCE_REMEDY) for name in ("partition", "cluster"))
    fingerprint = _fingerprint(found, location, _EVIDENCE_REMEDY)
    names = (None if name is None else intern(str(name)) for name in (fingerprint, topic))
    return EvidenceCluster(partition, cluster, np.array(offsets, np.int64), *names)


def _read_quarantine(path: Path) -> Iterator[QuarantineReference]:
    for number, line in enumerate(byte_lines(path), 1):
        location = f"{path}, line {number}"
        found = _object(line, location, _QUARANTINE_REMEDY)
        partition, offset = (_integer(found, name, location, _QUARANTINE_REMEDY) for name in ("partition", "offset"))
        topic, reason = found.get("topic"), str(found.get("reason"))
        is_wellformed = set(found) == set(_REFERENCE_FIELDS) and isinstance(topic, str) and reason in REASONS
        yield QuarantineReference(str(topic), partition, offset, reason, is_wellformed)


def _read_summary(path: Path) -> Summary:
    return dict(_as_plain(_object(b"\n".join(byte_lines(path)), str(path), _SUMMARY_REMEDY)))


def foreign_fingerprints(policy: str, stated_files: StatedFiles) -> tuple[list[int | str], list[str]]:
    """Return the labels of the clusters, and "summary", that state other fingerprints; and these, each once."""
    clusters, summary = stated_files.evidence_clusters or [], stated_files.summary_fields
    stated: list[tuple[int | str, str | None]] = [(cluster.label, cluster.fingerprint) for cluster in clusters]
    if summary is not None:
        stated.append(("summary", _fingerprint(summary, stated_files.summary_name, _SUMMARY_REMEDY)))
    others = [(label, found) for label, found in stated if found is not None and found != policy]
    return [label for label, _ in others], list(dict.fromkeys(found for _, found in others))


def is_count(value: object) -> TypeGuard[int]:
    """Whether a value is an integer of plausible size."""
    return type(value) is int and abs(value) < LARGEST_COUNT


def require_known_input(policy: Policy, input_topic: str | None) -> None:
    """Refuse an input that is none of ``kafka.topics``, if the policy has them: the name is mistyped."""
    known = [pair.input for pair in (policy.kafka and policy.kafka.topics) or () if pair.input]
    if input_topic is not None and known and input_topic not in known:
        raise InputError(f"--input-topic: no input of kafka.topics has this name; give one of {', '.join(known)}")


def _of_input(clusters: list[EvidenceCluster], input_topic: str | None) -> list[EvidenceCluster]:
    count = sum(cluster.topic is None for cluster in clusters)
    if input_topic is None:
        if 0 < count < len(clusters):
            raise InputError(
                "the evidence has clusters with and without an input topic; give the evidence topic that was written "
                "since there are several inputs"
            )
        return clusters
    if count:
        raise InputError(
            "a cluster of the evidence names no input topic; leave --input-topic out if there was one input, else give "
            "the evidence topic that was written since there are several"
        )
    return [cluster for cluster in clusters if cluster.topic == input_topic]


def _require_one_input(clusters: list[EvidenceCluster] | None, references: list[QuarantineReference] | None) -> None:
    """Refuse evidence and references of several inputs if it is not said which is judged."""
    named = {cluster.topic for cluster in clusters or [] if cluster.topic is not None}
    if clusters and not named:
        return  # the service has one input: a reference to another is false, which is left to their check
    named |= {reference.topic for reference in references or [] if reference.is_wellformed}
    if len(named) > 1:
        raise InputError(
            "evidence and quarantine name several input topics; give the one of the original with --input-topic NAME"
        )


@dataclass(frozen=True, slots=True)
class StatedFiles:
    """What the run states about its release; None where the file is not given."""

    evidence_clusters: list[EvidenceCluster] | None
    references: list[QuarantineReference] | None
    summary_fields: Summary | None
    summary_name: str = "the summary"


def read_stated(
    evidence: str | Path | None, quarantine: str | Path | None, summary: str | Path | Summary | None, topic: str | None
) -> StatedFiles:
    """Read what is stated of an input, or of the only one. A malformed reference is one of every input."""
    clusters = None if evidence is None else list(_read_evidence(Path(evidence)))
    references = None if quarantine is None else list(_read_quarantine(Path(quarantine)))
    if topic is None:
        _require_one_input(clusters, references)
    elif references is not None:
        references = [one for one in references if one.topic == topic or not one.is_wellformed]
    clusters = None if clusters is None else _of_input(clusters, topic)
    if isinstance(summary, str | Path):
        return StatedFiles(clusters, references, _read_summary(Path(summary)), str(summary))
    return StatedFiles(clusters, references, summary)


@dataclass(frozen=True, slots=True)
class AuditScope:
    """What is judged, as the policy and the user of `verify` say; nothing of it comes from the judged files."""

    is_table: bool
    is_ordered: bool
    has_table_grids: bool
    may_be_table: bool  # the policy has a stream section, and the user did not say which command made the release
    is_partial: bool
    is_strict: bool
    window: int | None = None  # delta + 1 offsets of a stream, within which a clock has no trend

    @classmethod
    def of(cls, policy: Policy, *, table: bool | None, partial: bool, strict: bool) -> AuditScope:
        """Return the scope. `shoal batch` publishes the resolutions of a stream if there is a stream section."""
        stream = None if table else policy.stream
        return cls(
            is_table=stream is None,
            is_ordered=stream is not None and stream.is_ordered,
            has_table_grids=policy.stream is None and table is not False,
            may_be_table=policy.stream is not None and table is None,
            is_partial=partial,
            is_strict=strict,
            window=None if stream is None else stream.delta + 1,
        )


def _fingerprint(found: Mapping[str, object], location: str, remedy: str) -> str | None:
    """Return the field ``policy``; None if it is missing, as in files of earlier versions."""
    if "policy" not in found:
        return None
    value = found["policy"]
    if not isinstance(value, str) or not _FINGERPRINT.fullmatch(value):
        raise InputError(f"{location}: policy must be a fingerprint of 64 hexadecimal digits; {remedy}")
    return value


def _object(text: bytes, location: str, remedy: str) -> dict[str, object]:
    try:
        found = json_value(text)
    except ValueError:
        raise InputError(f"{location}: not JSON; {remedy}") from None
    record = as_record(found)
    if record is None:
        raise InputError(f"{location}: not a JSON object with each name once; {remedy}")
    if within_depth(record) is None:
        raise InputError(f"{location}: nested too deeply; {remedy}")
    return dict(record)


def _integer(found: Mapping[str, object], name: str, location: str, remedy: str) -> int:
    value = found.get(name)
    if not is_count(value):
        raise InputError(f"{location}: {name} must be an integer; {remedy}")
    return value


def _as_plain(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, JsonObject | dict):
        return {name: _as_plain(item) for name, item in dict(value).items()}
    return [_as_plain(item) for item in value] if isinstance(value, list) else value
