"""The form of a release that was falsified by hand, and helpers that the catalogue shares."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from support.base_releases import Base, base_of
from support.release_files import Judgement, ReleaseFiles, judge_files

Edit = Callable[[ReleaseFiles], None]
P = ParamSpec("P")
R = TypeVar("R")


class Judged(Protocol):
    """A falsified release, in whatever form."""

    def judged(self, folder: Path) -> Judgement:
        """Write its files into a folder, and return what the judge says."""


@dataclass
class Files:
    """A falsified release as files: original, released, evidence, and summary or quarantine if there are any."""

    document: dict[str, Any]
    files: dict[str, bytes]
    strict: bool = False

    def judged(self, folder: Path) -> Judgement:
        """Write the files into a folder, and return what the judge says."""
        return judge_files(self.document, folder, self.files, strict=self.strict)


@dataclass(frozen=True)
class Falsification:
    """A falsified release, and what the judge must say of it.

    ``name``: what was done, for the table. ``base``: the sound release that is falsified. ``check``: one that must
    fail; "refused" if the input must be refused, "undecided" if a file is missing.
    """

    name: str
    base: str
    check: str
    make: Callable[[], Judged]

    @property
    def code(self) -> int:
        """Exit code of the judge."""
        return 2 if self.check in {"refused", "undecided"} else 1


def maker(function: Callable[P, R]) -> Callable[P, Callable[[], R]]:
    """Let a function that makes a release return what makes it."""

    def bind(*args: P.args, **options: P.kwargs) -> Callable[[], R]:
        return lambda: function(*args, **options)

    return bind


def editor(function: Callable[Concatenate[R, P], None]) -> Callable[P, Callable[[R], None]]:
    """Let a function that edits a release return the edit: a function of the release alone."""

    def bind(*args: P.args, **options: P.kwargs) -> Callable[[R], None]:
        return lambda release: function(release, *args, **options)

    return bind


def unchanged(_: object) -> None:
    """Leave all as it is."""


def sound(base: str | Base) -> ReleaseFiles:
    """Return the sound release of a base, ready to be changed."""
    return ReleaseFiles.of(base_of(base) if isinstance(base, str) else base)


def falsifications_of(base: str, *entries: tuple[str, str, Edit]) -> list[Falsification]:
    """Return falsifications that change one file of a base: name, check and change of each."""
    return [Falsification(name, base, check, edited(base, edit)) for name, check, edit in entries]


@maker
def edited(base: str, edit: Edit) -> ReleaseFiles:
    release = sound(base)
    edit(release)
    return release


def makers_of(base: str, *entries: tuple[str, str, Callable[[], Judged]]) -> list[Falsification]:
    """Return falsifications of a base: name, check and maker of each."""
    return [Falsification(name, base, check, make) for name, check, make in entries]


def limited(release: ReleaseFiles, **sections: dict[str, Any]) -> ReleaseFiles:
    """Give the judge a policy with these options besides, under which the release was not made."""
    release.document = deepcopy(release.document)
    for name, options in sections.items():
        release.document[name] = release.document.get(name, {}) | options
    return release


@editor
def summary_says(release: ReleaseFiles, /, **fields: Any) -> None:
    """Withhold the references, and change fields of the summary."""
    assert isinstance(release.summary, dict)
    release.quarantine = None
    release.summary |= fields


def usable_of(base: Base, partition: int | None = None) -> list[int]:
    """Return the indexes of the usable records, of all partitions or of one."""
    found = [index for index, record in enumerate(base.records) if record is not None]
    return [index for index in found if partition is None or base.places[index][0] == partition]


def edited_line(line: str, **changes: Any) -> str:
    """Return a JSON line with other fields; None removes a field."""
    content = json.loads(line) | changes
    return json.dumps({name: value for name, value in content.items() if value is not None})


def far_apart(base: Base, size: int, distance: int, *, count: int) -> list[list[int]]:
    """Return clusters of usable records of the first partition that are a distance apart."""
    usable = usable_of(base, 0)
    return [usable[start : start + size * distance : distance] for start in range(count)]


def with_records(base: Base, changes: dict[int, dict[str, Any]], document: dict[str, Any] | None = None) -> Base:
    """Return a base of JSON lines with other values in some records, which its clusters keep."""
    records = [
        record if index not in changes else {**(record or {}), **changes[index]}
        for index, record in enumerate(base.records)
    ]
    lines: Sequence[bytes] = base.original.splitlines()
    lines = [
        line if record is None else json.dumps(record).encode() for line, record in zip(lines, records, strict=True)
    ]
    return replace(
        base,
        records=tuple(records),
        original=b"".join(line + b"\n" for line in lines),
        document=document or base.document,
    )
