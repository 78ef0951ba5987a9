"""The workflows of GitHub, judged by actionlint."""

from __future__ import annotations

from pathlib import Path

from support.tools import output_of

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ("-no-color", "-oneline", "-shellcheck=", "-pyflakes=")


def test_the_workflows_have_no_fault() -> None:
    paths = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert [path.name for path in paths] == ["check.yml", "nightly.yml", "release.yml"]
    assert output_of("actionlint", *OPTIONS, *paths) == ""
