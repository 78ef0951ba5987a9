"""The form of a release that was falsified by hand, and helpers that the catalogue shares."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from shoal.policy import Policy
from shoal.policy.schema import Document
from support.base_releases import Base, base_of
from support.release_files import Judgement, ReleaseFiles, judge

__all__ = ["Edit", "Falsification", "Files", "edited_line", "falsifications_of", "far_apart", "sound", "with_records"]

Edit = Callable[[ReleaseFiles], None]


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
        paths = {}
        for name, content in self.files.items():
            paths[name.split(".")[0]] = folder / name
            (folder / name).write_bytes(content)
        policy = Policy.from_document(Document.model_validate(self.document))
        return judge(policy, paths, strict=self.strict)


@dataclass(frozen=True)
class Falsification:
    """A falsified release, and what the judge must say of it.

    Attributes
    ----------
    name : str
        What was done, for the table.
    base : str
        The sound release that is falsified.
    make : callable
        Returns the falsified release.
    code : int
        Exit code of the judge.
    check : str
        A check that must fail; "refused" if the input must be refused, "undecided" if a file is missing.
    """

    name: str
    base: str
    make: Callable[[], Judged]
    code: int
    check: str


def sound(base: str | Base) -> ReleaseFiles:
    """Return the sound release of a base, ready to be changed."""
    return ReleaseFiles.of(base_of(base) if isinstance(base, str) else base)


def falsifications_of(base: str | Base, *entries: tuple[str, int, str, Edit]) -> list[Falsification]:
    """Return falsifications that change one file of a base: name, exit code, check and change of each."""

    def making(edit: Edit) -> Callable[[], ReleaseFiles]:
        def make() -> ReleaseFiles:
            release = sound(base)
            edit(release)
            return release

        return make

    name = base if isinstance(base, str) else base.name
    return [Falsification(text, name, making(edit), code, check) for text, code, check, edit in entries]


def edited_line(line: str, **changes: Any) -> str:
    """Return a JSON line with other fields; None removes a field."""
    content = json.loads(line) | changes
    return json.dumps({name: value for name, value in content.items() if value is not None})


def far_apart(base: Base, size: int, distance: int, *, first: int = 0, count: int = 10**6) -> list[list[int]]:
    """Return clusters of usable records that are a distance apart: a, a + distance, a + 2 distance, ..."""
    usable = [index for index, record in enumerate(base.records) if record is not None]
    starts = range(first, min(first + count, len(usable) - (size - 1) * distance))
    return [[usable[start + number * distance] for number in range(size)] for start in starts]


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
