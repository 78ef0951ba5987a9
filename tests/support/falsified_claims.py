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
    editor,
    falsifications_of,
    maker,
    makers_of,
    sound,
    summary_says,
    unchanged,
    with_records,
)
from support.release_files import ReleaseFiles

OTHER_POLICY = "0" * 64
"""A fingerprint that no policy has."""


@editor
def evidence(release: ReleaseFiles, change: Callable[[list[str]], object]) -> None:
    """Change the lines of evidence."""
    assert release.evidence is not None
    change(release.evidence)


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


@editor
def summary(release: ReleaseFiles, /, **changes: Any) -> None:
    """Change fields of the summary."""
    assert isinstance(release.summary, dict)
    release.summary |= changes


def summary_text(change: Callable[[str], str]) -> Edit:
    """Return an edit of the text of the summary."""
    return lambda release: setattr(release, "summary", change(json.dumps(release.summary)))


@editor
def references(release: ReleaseFiles, change: Callable[[list[str], ReleaseFiles], object]) -> None:
    """Change the references."""
    assert release.quarantine is not None
    change(release.quarantine, release)


def first_reference(**changes: Any) -> Edit:
    """Return an edit of fields of the first reference."""
    return references(lambda lines, _: lines.__setitem__(0, edited_line(lines[0], **changes)))


@maker
def emptied(edit: Edit, base: str = "stream") -> ReleaseFiles:
    """Return a release without any row; all files agree with it."""
    release = sound(base)
    release.clusters = []
    release.recompose()
    edit(release)
    return release


def unusable_member() -> ReleaseFiles:
    """Return a release of which one member's age is null in the original."""
    base = base_of("stream")
    release = sound(base)
    index = release.clusters[2][1]
    release.base = with_records(base, {index: {"age": None}})
    return release


_UNREAD = {"records_in": 0, "suppressed": {}, "quarantined": {}}

FALSIFICATIONS: list[Falsification] = [
    *makers_of(
        "stream",
        ("a member whose age is null", "existing", unusable_member),
        ("nothing released, all listed as suppressed", "suppressed", emptied(unchanged)),
        ("nothing released, summary says suppressed", "complete", emptied(summary_says())),
        ("nothing released, summary says that nothing was read", "complete", emptied(summary_says(**_UNREAD))),
        ("nothing released, summary says held", "complete", emptied(summary_says(suppressed={}, held=117))),
    ),
    *makers_of(
        "ordered",
        ("nothing of an ordered release, all listed as suppressed", "suppressed", emptied(unchanged, "ordered")),
    ),
    *makers_of("table", ("nothing of a table, all listed as suppressed", "suppressed", emptied(unchanged, "table"))),
    *falsifications_of(
        "stream",
        ("evidence: a line missing", "nothing_else", evidence(lambda lines: lines.pop(3))),
        ("evidence: a line twice", "once", evidence(lambda lines: lines.append(lines[0]))),
        ("evidence: a line with no offsets", "subjects", first_line(offsets=[])),
        ("evidence: a member missing", "nothing_else", first_offsets(lambda offsets: offsets[1:])),
        ("evidence: a member twice", "once", first_offsets(lambda offsets: [*offsets, offsets[0]])),
        ("evidence: a member of another cluster besides", "once", first_offsets(lambda offsets: [*offsets, 60])),
        ("evidence: an offset beyond the end", "existing", first_offsets(lambda offsets: [*offsets, 5000])),
        ("evidence: an unusable record", "existing", first_offsets(lambda offsets: [*offsets, 5])),
        ("evidence: a negative offset", "existing", first_offsets(lambda offsets: [-1, *offsets])),
        ("evidence: a huge offset", "refused", first_offsets(lambda offsets: [1 << 70, *offsets])),
        ("evidence: offsets as texts", "refused", first_offsets(lambda offsets: list(map(str, offsets)))),
        ("evidence: offsets as floats", "refused", first_offsets(lambda offsets: list(map(float, offsets)))),
        ("evidence: truth values as offsets", "refused", first_offsets(lambda offsets: [True, False, *offsets])),
        ("evidence: null as an offset", "refused", first_offsets(lambda offsets: [None, *offsets])),
        ("evidence: a list in the list of offsets", "refused", first_offsets(lambda offsets: [offsets])),
        ("evidence: NaN as the partition", "refused", first_line(partition=float("nan"))),
        ("evidence: another partition", "existing", first_line(partition=1)),
        ("evidence: a field besides", "refused", first_line(note="x")),
        ("evidence: offsets named twice", "refused", same_lines(lambda line: line[:-1] + ', "offsets": [0]}')),
        ("evidence: numbers of clusters as texts", "refused", same_lines(lambda line: edited_line(line, cluster="0"))),
        ("evidence: members of two clusters exchanged", "together", evidence(swapped)),
        ("evidence: two clusters as one", "nothing_else", evidence(joined)),
        ("evidence: not JSON", "refused", same_lines(lambda line: line.replace('"', "'"))),
        ("evidence: policy of another run", "policy", same_lines(lambda line: edited_line(line, policy=OTHER_POLICY))),
        ("evidence: policy of another run in one line", "policy", first_line(policy=OTHER_POLICY)),
        ("evidence: policy that is no text", "refused", first_line(policy=7)),
        ("summary: policy of another run", "policy", summary(policy=OTHER_POLICY)),
        ("summary: one row more", "accounts", summary(released=118)),
        ("summary: one cluster fewer", "accounts", summary(clusters=38)),
        ("summary: larger clusters", "accounts", summary(cluster_size={"min": 5, "mean": 5.0, "max": 5})),
        ("summary: more subjects", "accounts", summary(subjects={"min": 4})),
        ("summary: records held at the end of a file", "accounts", summary(held=3, quarantined={})),
        ("summary: a negative count", "accounts", summary(suppressed={"suppressed": -3}, held=3)),
        ("summary: NaN as a count", "refused", summary(released=float("nan"))),
        ("summary: truth values as counts", "refused", summary(held=False)),
        ("summary: counts as texts", "refused", summary(released="117")),
        ("summary: a count twice", "refused", summary_text(lambda text: text[:-1] + ', "released": 5}')),
        ("summary: a list", "refused", summary_text(lambda text: f"[{text}]")),
        (
            "references: a released record",
            "references",
            references(lambda lines, release: lines.append(release.reference(release.clusters[0][0]))),
        ),
        ("references: one twice", "references", references(lambda lines, _: lines.append(lines[0]))),
        (
            "references: an offset beyond the end",
            "references",
            references(lambda lines, _: lines.append(edited_line(lines[0], offset=5000))),
        ),
        ("references: an unknown reason", "reasons", first_reference(reason="p1")),
        ("references: a field besides", "reasons", first_reference(age=41)),
        (
            "references: an unusable record as suppressed",
            "accounts",
            references(lambda lines, release: lines.__setitem__(0, release.reference(5, "suppressed"))),
        ),
        ("references: none", "complete", references(lambda lines, _: lines.clear())),
        ("references: another partition", "references", first_reference(partition=3)),
    ),
    *falsifications_of(
        "topic",
        (
            "evidence: lines under the other partition",
            "existing",
            same_lines(lambda line: edited_line(line, partition=1 - json.loads(line)["partition"])),
        ),
        (
            "evidence: policy of another run in a few lines",
            "undecided",
            evidence(
                lambda lines: lines.__setitem__(
                    slice(3), [edited_line(line, policy=OTHER_POLICY) for line in lines[:3]]
                )
            ),
        ),
        ("references: one missing", "complete", references(lambda lines, _: lines.pop())),
        ("evidence: one number for all clusters", "undecided", same_lines(lambda line: edited_line(line, cluster=0))),
    ),
]
