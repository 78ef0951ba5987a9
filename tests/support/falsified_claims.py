"""Falsified releases: evidence, summary and references: what the judged party says beside its release."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from support.base_releases import base_of
from support.named_falsifications import (
    Edit,
    Falsification,
    edited_line,
    falsifications_of,
    makers_of,
    sound,
    unchanged,
    with_records,
)
from support.release_files import ReleaseFiles

__all__ = ["FALSIFICATIONS"]

OTHER_POLICY = "0" * 64
"""A fingerprint that no policy has."""


def evidence(change: Callable[[list[str]], object]) -> Edit:
    """Return an edit of the lines of evidence."""

    def edit(release: ReleaseFiles) -> None:
        assert release.evidence is not None
        change(release.evidence)

    return edit


def first_line(**changes: Any) -> Edit:
    """Return an edit of fields of the first line of evidence."""
    return evidence(lambda lines: lines.__setitem__(0, edited_line(lines[0], **changes)))


def first_offsets(change: Callable[[list[Any]], list[Any]]) -> Edit:
    """Return an edit of the offsets of the first line of evidence."""

    def edit(lines: list[str]) -> None:
        lines[0] = edited_line(lines[0], offsets=change(json.loads(lines[0])["offsets"]))

    return evidence(edit)


def same_lines(change: Callable[[str], str]) -> Edit:
    """Return an edit of the text of every line of evidence."""
    return evidence(lambda lines: lines.__setitem__(slice(None), [change(line) for line in lines]))


def swapped(lines: list[str]) -> None:
    one, other = json.loads(lines[0])["offsets"], json.loads(lines[4])["offsets"]
    lines[0], lines[4] = edited_line(lines[0], offsets=other), edited_line(lines[4], offsets=one)


def joined(lines: list[str]) -> None:
    both = json.loads(lines[0])["offsets"] + json.loads(lines[1])["offsets"]
    lines[0:2] = [edited_line(lines[0], offsets=both)]


def summary(**changes: Any) -> Edit:
    """Return an edit of fields of the summary."""

    def edit(release: ReleaseFiles) -> None:
        assert isinstance(release.summary, dict)
        release.summary |= changes

    return edit


def summary_text(change: Callable[[str], str]) -> Edit:
    """Return an edit of the text of the summary."""
    return lambda release: setattr(release, "summary", change(json.dumps(release.summary)))


def references(change: Callable[[list[str], ReleaseFiles], object]) -> Edit:
    """Return an edit of the references."""

    def edit(release: ReleaseFiles) -> None:
        assert release.quarantine is not None
        change(release.quarantine, release)

    return edit


def first_reference(**changes: Any) -> Edit:
    """Return an edit of fields of the first reference."""
    return references(lambda lines, _: lines.__setitem__(0, edited_line(lines[0], **changes)))


def emptied(edit: Edit, base: str = "stream") -> Callable[[], ReleaseFiles]:
    """Return a maker of a release without any row; all files agree with it."""

    def make() -> ReleaseFiles:
        release = sound(base)
        release.clusters = []
        release.recompose()
        edit(release)
        return release

    return make


def unusable_member() -> ReleaseFiles:
    """Return a release of which one member's age is null in the original."""
    base = base_of("stream")
    release = sound(base)
    index = release.clusters[2][1]
    release.base = with_records(base, {index: {"age": None}})
    return release


def without_references(release: ReleaseFiles) -> None:
    release.quarantine = None


def summary_alone(**changes: Any) -> Edit:
    """Return an edit that withholds the references and changes the summary."""

    def edit(release: ReleaseFiles) -> None:
        without_references(release)
        summary(**changes)(release)

    return edit


_UNREAD = {"records_in": 0, "suppressed": {}, "quarantined": {}}

FALSIFICATIONS: list[Falsification] = [
    *makers_of(
        "stream",
        ("a member whose age is null", 1, "existing", unusable_member),
        ("nothing released, all listed as suppressed", 1, "suppressed", emptied(unchanged)),
        ("nothing released, summary says suppressed", 1, "complete", emptied(without_references)),
        ("nothing released, summary says that nothing was read", 1, "complete", emptied(summary_alone(**_UNREAD))),
        ("nothing released, summary says held", 1, "complete", emptied(summary_alone(suppressed={}, held=117))),
    ),
    *makers_of(
        "ordered",
        ("nothing of an ordered release, all listed as suppressed", 1, "suppressed", emptied(unchanged, "ordered")),
    ),
    *makers_of("table", ("nothing of a table, all listed as suppressed", 1, "suppressed", emptied(unchanged, "table"))),
    *falsifications_of(
        "stream",
        ("evidence: a line missing", 1, "nothing_else", evidence(lambda lines: lines.pop(3))),
        ("evidence: a line twice", 1, "once", evidence(lambda lines: lines.append(lines[0]))),
        ("evidence: a line with no offsets", 1, "subjects", first_line(offsets=[])),
        ("evidence: a member missing", 1, "nothing_else", first_offsets(lambda offsets: offsets[1:])),
        ("evidence: a member twice", 1, "once", first_offsets(lambda offsets: [*offsets, offsets[0]])),
        ("evidence: a member of another cluster besides", 1, "once", first_offsets(lambda offsets: [*offsets, 60])),
        ("evidence: an offset beyond the end", 1, "existing", first_offsets(lambda offsets: [*offsets, 5000])),
        ("evidence: an unusable record", 1, "existing", first_offsets(lambda offsets: [*offsets, 5])),
        ("evidence: a negative offset", 1, "existing", first_offsets(lambda offsets: [-1, *offsets])),
        ("evidence: a huge offset", 2, "refused", first_offsets(lambda offsets: [1 << 70, *offsets])),
        ("evidence: offsets as texts", 2, "refused", first_offsets(lambda offsets: list(map(str, offsets)))),
        ("evidence: offsets as floats", 2, "refused", first_offsets(lambda offsets: list(map(float, offsets)))),
        ("evidence: truth values as offsets", 2, "refused", first_offsets(lambda offsets: [True, False, *offsets])),
        ("evidence: null as an offset", 2, "refused", first_offsets(lambda offsets: [None, *offsets])),
        ("evidence: a list in the list of offsets", 2, "refused", first_offsets(lambda offsets: [offsets])),
        ("evidence: NaN as the partition", 2, "refused", first_line(partition=float("nan"))),
        ("evidence: another partition", 1, "existing", first_line(partition=1)),
        ("evidence: a field besides", 2, "refused", first_line(note="x")),
        ("evidence: offsets named twice", 2, "refused", same_lines(lambda line: line[:-1] + ', "offsets": [0]}')),
        (
            "evidence: numbers of clusters as texts",
            2,
            "refused",
            same_lines(lambda line: edited_line(line, cluster="0")),
        ),
        ("evidence: members of two clusters exchanged", 1, "together", evidence(swapped)),
        ("evidence: two clusters as one", 1, "nothing_else", evidence(joined)),
        ("evidence: not JSON", 2, "refused", same_lines(lambda line: line.replace('"', "'"))),
        (
            "evidence: policy of another run",
            1,
            "policy",
            same_lines(lambda line: edited_line(line, policy=OTHER_POLICY)),
        ),
        ("evidence: policy of another run in one line", 1, "policy", first_line(policy=OTHER_POLICY)),
        ("evidence: policy that is no text", 2, "refused", first_line(policy=7)),
        ("summary: policy of another run", 1, "policy", summary(policy=OTHER_POLICY)),
        ("summary: one row more", 1, "accounts", summary(released=118)),
        ("summary: one cluster fewer", 1, "accounts", summary(clusters=38)),
        ("summary: larger clusters", 1, "accounts", summary(cluster_size={"min": 5, "mean": 5.0, "max": 5})),
        ("summary: more subjects", 1, "accounts", summary(subjects={"min": 4})),
        ("summary: records held at the end of a file", 1, "accounts", summary(held=3, quarantined={})),
        ("summary: a negative count", 1, "accounts", summary(suppressed={"suppressed": -3}, held=3)),
        ("summary: NaN as a count", 2, "refused", summary(released=float("nan"))),
        ("summary: truth values as counts", 2, "refused", summary(held=False)),
        ("summary: counts as texts", 2, "refused", summary(released="117")),
        ("summary: a count twice", 2, "refused", summary_text(lambda text: text[:-1] + ', "released": 5}')),
        ("summary: a list", 2, "refused", summary_text(lambda text: f"[{text}]")),
        (
            "references: a released record",
            1,
            "references",
            references(lambda lines, release: lines.append(release.reference(release.clusters[0][0]))),
        ),
        ("references: one twice", 1, "references", references(lambda lines, _: lines.append(lines[0]))),
        (
            "references: an offset beyond the end",
            1,
            "references",
            references(lambda lines, _: lines.append(edited_line(lines[0], offset=5000))),
        ),
        ("references: an unknown reason", 1, "reasons", first_reference(reason="p1")),
        ("references: a field besides", 1, "reasons", first_reference(age=41)),
        (
            "references: an unusable record as suppressed",
            1,
            "accounts",
            references(lambda lines, release: lines.__setitem__(0, release.reference(5, "suppressed"))),
        ),
        ("references: none", 1, "complete", references(lambda lines, _: lines.clear())),
        ("references: another partition", 1, "references", first_reference(partition=3)),
    ),
    *falsifications_of(
        "topic",
        (
            "evidence: lines under the other partition",
            1,
            "existing",
            same_lines(lambda line: edited_line(line, partition=1 - json.loads(line)["partition"])),
        ),
        (
            "evidence: policy of another run in a few lines",
            2,
            "undecided",
            evidence(
                lambda lines: lines.__setitem__(
                    slice(3), [edited_line(line, policy=OTHER_POLICY) for line in lines[:3]]
                )
            ),
        ),
        ("references: one missing", 1, "complete", references(lambda lines, _: lines.pop())),
        (
            "evidence: one number for all clusters",
            2,
            "undecided",
            same_lines(lambda line: edited_line(line, cluster=0)),
        ),
    ),
]
