"""Files for people outside: metadata of the package, workflows, forms."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WRITES = {("release.yml", "package"), ("release.yml", "publish-package"), ("release.yml", "image")}
"""Jobs that may do more than read the repository."""


def yaml(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))


def pythons() -> list[str]:
    return [found[1] for one in PROJECT["classifiers"] if (found := re.search(r"Python :: (3\.\d+)$", one))]


def test_the_readme_has_at_most_650_words() -> None:
    assert len((ROOT / PROJECT["readme"]).read_text(encoding="utf-8").split()) <= 650


def test_every_python_that_is_named_is_checked() -> None:
    job = yaml(GITHUB / "workflows" / "check.yml")["jobs"]["check"]
    assert job["strategy"]["matrix"]["python"] == pythons() == ["3.11", "3.12", "3.13", "3.14"]
    assert job["steps"][-1] == {"run": "make check"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_do_what_it_needs_and_no_more(path: Path) -> None:
    workflow = yaml(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        if "uses" in job:  # a workflow of this repository, which is checked here, too
            assert job == {"uses": "./.github/workflows/check.yml"}
            continue
        assert job["timeout-minutes"] > 0
        assert ("permissions" in job) == ((path.name, name) in WRITES)
        for step in job["steps"]:
            action = step.get("uses", "")
            assert re.fullmatch(r"(|[\w-]+/[\w-]+@[0-9a-f]{40})", action), "a tag can be moved"
            if action.startswith("actions/checkout@"):
                assert step["with"] == {"persist-credentials": False}
            assert "${{" not in step.get("run", ""), "text of others would be run as a command"


def test_nothing_is_released_without_the_checks_and_the_names_of_the_publisher() -> None:
    jobs = yaml(GITHUB / "workflows" / "release.yml")["jobs"]
    assert jobs["publish-package"]["if"] == "vars.PUBLISH_PACKAGE == 'true'"
    (build,) = [step for step in jobs["image"]["steps"] if step.get("id") == "build"]
    assert build["with"]["push"] == "${{ vars.IMAGE != '' }}"
    assert (build["with"]["sbom"], build["with"]["provenance"]) == (True, "mode=max")
    assert jobs["check"]["uses"] == "./.github/workflows/check.yml"
    assert jobs["package"]["needs"] == "check"
    assert jobs["image"]["needs"] == jobs["publish-package"]["needs"] == "package"
    lines = [line for step in jobs["package"]["steps"] for line in step.get("run", "").splitlines()]
    assert ["--only-binary :all:" in line for line in lines if " install " in line] == [True, True]


@pytest.mark.parametrize(
    ("image", "base", "code"),
    [
        ("", "", 0),
        ("registry.example/shoal", "", 1),
        ("registry.example/shoal", "python:3.11-slim", 1),
        ("registry.example/shoal", f"python:3.11-slim@sha256:{'0' * 64}", 0),
    ],
)
def test_an_image_is_published_on_a_base_that_is_named_by_digest(image: str, base: str, code: int) -> None:
    steps = yaml(GITHUB / "workflows" / "release.yml")["jobs"]["image"]["steps"]
    (step,) = [one for one in steps if "IMAGE_BASE" in one.get("env", {})]
    assert steps.index(step) < [one.get("id") for one in steps].index("build")
    environment = {"IMAGE": image, "IMAGE_BASE": base}
    command = ["bash", "-e", "-c", step["run"]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "IMAGE_BASE: names no digest; set it to" in done.stdout) == (code, code == 1)


def test_a_form_warns_of_personal_data_first_and_how_to_report_is_said_where_it_is_looked_for() -> None:
    for name in ("bug.yml", "feature.yml"):
        form = yaml(GITHUB / "ISSUE_TEMPLATE" / name)
        assert form["body"][0]["attributes"]["value"].startswith("**Do not paste personal data.**")
    assert yaml(GITHUB / "ISSUE_TEMPLATE" / "config.yml") == {"blank_issues_enabled": False}
    assert "## Reporting\n\nReport in private" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "SECURITY.md#reporting" in (ROOT / "CODE_OF_CONDUCT.md").read_text(encoding="utf-8")
