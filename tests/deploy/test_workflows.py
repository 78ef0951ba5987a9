"""The workflows of GitHub, judged by actionlint."""

from __future__ import annotations

from pathlib import Path

from support.tools import output_of, run_tool

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ("-no-color", "-oneline", "-shellcheck=", "-pyflakes=")


def test_the_workflows_have_no_fault() -> None:
    paths = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert [path.name for path in paths] == ["check.yml", "nightly.yml", "release.yml"]
    assert output_of("actionlint", *OPTIONS, *paths) == ""


def test_a_fault_would_be_seen(tmp_path: Path) -> None:
    text = (ROOT / ".github" / "workflows" / "check.yml").read_text(encoding="utf-8")
    broken = tmp_path / "check.yml"
    broken.write_text(text.replace("runs-on:", "run-on:"), encoding="utf-8")
    done = run_tool("actionlint", *OPTIONS, broken)
    assert done.returncode == 1
    assert 'unexpected key "run-on"' in done.stdout
