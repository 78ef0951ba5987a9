"""The files that name by hash what the image installs agree with constraints.txt and pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("requirements.txt", "build-requirements.txt")
PINNED = re.compile(r"^([\w.-]+)==(\S+?)(?: ; (.*?))?(?: \\)?$")


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in lines if not line.startswith("#")}


def locked(name: str) -> dict[str, str]:
    """Versions of a lock file by name; checks that each has hashes, and that the file names no host."""
    text = (ROOT / "deploy" / "image" / name).read_text(encoding="utf-8")
    assert "://" not in text
    versions: dict[str, str] = {}
    hashes: dict[str, int] = {}
    newest = ""
    for line in text.splitlines():
        if found := PINNED.match(line):
            newest = canonicalize_name(found[1])
            versions[newest], hashes[newest] = found[2], 0
        elif not line.startswith("#"):
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line), line
            hashes[newest] += 1
    assert min(hashes.values()) > 0
    return versions


def needed(requirement: Requirement, found: set[str]) -> None:
    """Add the names of a distribution and of all that it needs, as installed here."""
    name = canonicalize_name(requirement.name)
    found.add(name)
    for text in requires(name) or []:
        further = Requirement(text)
        is_needed = further.marker is None or any(
            further.marker.evaluate({"extra": extra}) for extra in requirement.extras or {""}
        )
        is_new = canonicalize_name(further.name) not in found or bool(further.extras)
        if is_needed and is_new:
            needed(further, found)


@pytest.mark.parametrize("name", LOCKS)
def test_the_versions_are_those_of_the_constraints(name: str) -> None:
    assert locked(name).items() <= constraints().items()


def test_what_the_package_needs_is_locked_and_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names: set[str] = set()
    for text in project["dependencies"]:
        needed(Requirement(text), names)
    assert len(names) > 20
    assert set(locked("requirements.txt")) == names


def test_what_builds_the_image_is_locked() -> None:
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for text in (*content["dependency-groups"]["image"], *content["build-system"]["requires"]):
        requirement = Requirement(text)
        assert requirement.specifier.contains(locked("build-requirements.txt")[canonicalize_name(requirement.name)])
