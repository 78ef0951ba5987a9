"""Files for people outside: metadata of the package, workflows, forms."""

from __future__ import annotations

import re
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


def test_the_package_says_what_it_is() -> None:
    assert PROJECT["authors"] == [{"name": "The Shoal authors"}]
    assert PROJECT["keywords"] == sorted(PROJECT["keywords"])
    assert PROJECT["classifiers"] == sorted(PROJECT["classifiers"])
    assert "k-anonymity" in PROJECT["keywords"]
    assert PROJECT["requires-python"] == f">={pythons()[0]}"
    assert (ROOT / PROJECT["readme"]).is_file()
    assert all((ROOT / name).is_file() for name in PROJECT["license-files"])
    assert "Typing :: Typed" in PROJECT["classifiers"]
    assert (ROOT / "service" / "shoal" / "py.typed").is_file()
    assert "urls" not in PROJECT, "they are the publisher's"


def test_every_python_that_is_named_is_checked() -> None:
    job = yaml(GITHUB / "workflows" / "check.yml")["jobs"]["check"]
    assert job["strategy"]["matrix"]["python"] == pythons() == ["3.11", "3.12", "3.13", "3.14"]
    assert job["steps"][-1] == {"run": "make check"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_do_what_it_needs_and_no_more(path: Path) -> None:
    workflow = yaml(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] > 0
        assert ("permissions" in job) == ((path.name, name) in WRITES)
        for step in job["steps"]:
            action = step.get("uses", "")
            assert re.fullmatch(r"(|[\w-]+/[\w-]+@(v\d+|release/v1|[0-9a-f]{40}))", action)
            if action.startswith("actions/checkout@"):
                assert step["with"] == {"persist-credentials": False}
            assert "${{" not in step.get("run", ""), "text of others would be run as a command"


def test_nothing_is_published_without_the_names_of_the_publisher() -> None:
    jobs = yaml(GITHUB / "workflows" / "release.yml")["jobs"]
    assert jobs["publish-package"]["if"] == "vars.PUBLISH_PACKAGE == 'true'"
    (build,) = [step for step in jobs["image"]["steps"] if step.get("id") == "build"]
    assert build["with"]["push"] == "${{ vars.IMAGE != '' }}"
    assert (build["with"]["sbom"], build["with"]["provenance"]) == (True, "mode=max")


@pytest.mark.parametrize("name", ["bug.yml", "feature.yml"])
def test_a_form_warns_of_personal_data_first(name: str) -> None:
    form = yaml(GITHUB / "ISSUE_TEMPLATE" / name)
    assert form["body"][0]["attributes"]["value"].startswith("**Do not paste personal data.**")
    ids = [item["id"] for item in form["body"] if item["type"] != "markdown"]
    assert len(ids) == len(set(ids)) > 3
    assert yaml(GITHUB / "ISSUE_TEMPLATE" / "config.yml") == {"blank_issues_enabled": False}


def test_every_kind_of_dependency_is_watched() -> None:
    updates = yaml(GITHUB / "dependabot.yml")["updates"]
    kinds = ["pip", "github-actions", "docker", "docker-compose", "maven"]
    assert [one["package-ecosystem"] for one in updates] == kinds
    for one in updates:
        for folder in one.get("directories", [one.get("directory")]):
            assert (ROOT / folder.lstrip("/")).is_dir()


def test_how_to_report_is_said_where_it_is_looked_for() -> None:
    assert "## Reporting\n\nReport in private" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "SECURITY.md#reporting" in (ROOT / "CODE_OF_CONDUCT.md").read_text(encoding="utf-8")
