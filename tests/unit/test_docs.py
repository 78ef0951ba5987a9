"""The documents: links resolve, examples parse, and show what the command really prints."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path
from textwrap import indent

import pytest
from ruamel.yaml import YAML
from shoal.cli import main
from shoal.policy import KafkaSection, Policy, advise, check_connection, check_names

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "service" / "shoal"
QUICKSTART = ROOT / "docs" / "quickstart"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!\\)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")


@cache
def pages() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [ROOT / name for name in listed.stdout.splitlines()]


def prose(text: str) -> str:
    """Text without code: what looks like a link there is none."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def slug(title: str) -> str:
    """Anchor of a heading, as GitHub makes it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return frozenset(map(slug, headings))


def broken_links(page: Path, root: Path = ROOT) -> list[str]:
    found = []
    for target in LINK.findall(prose(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        aim = (page.parent / name).resolve() if name else page
        is_there = aim.exists() and aim.is_relative_to(root)
        if not is_there or (anchor and (aim.suffix != ".md" or anchor not in anchors(aim))):
            found.append(f"{page.relative_to(root)}: {target}")
    return found


def fences(page: Path, language: str) -> list[str]:
    return [text for name, text in FENCE.findall(page.read_text(encoding="utf-8")) if name == language]


def table(page: Path, first: str) -> list[list[str]]:
    """Cells of the table of a page whose first column has this title; without head and rule."""
    lines = page.read_text(encoding="utf-8").split(f"\n| {first} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_relative_link_and_anchor_resolves() -> None:
    assert len(pages()) > 25
    assert [link for page in pages() for link in broken_links(page)] == []


def test_every_page_of_the_documentation_is_linked_from_a_map() -> None:
    linked = set()
    for page in (ROOT / "docs" / "README.md", ROOT / "docs" / "adr" / "README.md"):
        for target in LINK.findall(prose(page.read_text(encoding="utf-8"))):
            linked.add((page.parent / target.partition("#")[0]).resolve())
    documents = {page for page in pages() if page.is_relative_to(ROOT / "docs")}
    assert sorted(str(page) for page in documents - linked if page != ROOT / "docs" / "README.md") == []


def test_package_chart_and_readme_have_the_newest_version_of_the_changelog() -> None:
    places = {
        "CHANGELOG.md": r"^## \[(\d.*)\] - \d{4}-\d\d-\d\d$",
        "pyproject.toml": r'^version = "(.*)"$',
        "deploy/helm/shoal/Chart.yaml": r"^version: (.*)$",
        "README.md": r"^Version ([\d.]*\d),",
    }
    found = {
        name: match[1]
        for name, pattern in places.items()
        if (match := re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE))
    }
    assert found.keys() == places.keys()
    assert len(set(found.values())) == 1, found


def parse(language: str, text: str) -> None:
    """Raise an exception if an example is not valid."""
    if language == "sh":
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    elif language == "python":
        is_whole = "await" not in text or "async def" in text
        ast.parse(text if is_whole else "async def _():\n" + indent(text, "    "))
    else:
        assert isinstance(YAML(typ="safe").load(text), dict)


@pytest.mark.parametrize("language", ["sh", "python", "yaml"])
def test_examples_parse(language: str) -> None:
    examples = [text for page in pages() for text in fences(page, language)]
    assert len(examples) > 3
    for text in examples:
        parse(language, text)


def test_policies_of_readme_and_policy_page_have_no_faults(tmp_path: Path) -> None:
    (of_readme,), (of_page, *_) = fences(ROOT / "README.md", "yaml"), fences(ROOT / "docs" / "policy.md", "yaml")
    path = tmp_path / "policy.yaml"
    path.write_text(of_readme, encoding="utf-8")
    assert Policy.load(path) == Policy.load(QUICKSTART / "policy.yaml")
    path.write_text(of_page, encoding="utf-8")
    assert Policy.load(path).k == 10


def test_the_connection_settings_of_the_operating_page_fit_together() -> None:
    shown = [YAML(typ="safe").load(text) for text in fences(ROOT / "docs" / "operate.md", "yaml")]
    connections = [KafkaSection.model_validate(part["kafka"]) for part in shown]
    for settings in connections:
        assert [*check_names(settings), *check_connection(settings, has_secrets=False)] == []
    found = {(settings.security_protocol, settings.sasl_mechanism) for settings in connections}
    assert {("SSL", None), ("SASL_SSL", "SCRAM-SHA-512"), ("SASL_SSL", "OAUTHBEARER")} <= found


def test_the_policy_of_the_page_on_confidential_values_has_no_fault(tmp_path: Path) -> None:
    page = ROOT / "docs" / "protection.md"
    (shown,), (reference,) = fences(page, "yaml"), fences(page, "csv")
    (tmp_path / "policy.yaml").write_text(shown, encoding="utf-8")
    (tmp_path / "diagnosis.csv").write_text(reference, encoding="utf-8")
    policy = Policy.load(tmp_path / "policy.yaml")
    assert [attribute.name for attribute in policy.protected] == ["diagnosis"]
    assert (policy.t, policy.max_value_share) == (0.4, 0.6)
    assert [sentence for sentence in advise(policy) if "diagnosis" in sentence] == []
    forms = [form for row in table(page, "form of `l`") for form in re.findall(r"`([^`]+)`", row[0])]
    assert len(forms) == 3
    for form in forms:
        (tmp_path / "policy.yaml").write_text(shown.replace("l: 3", f"l: {form}"), encoding="utf-8")
        found = Policy.load(tmp_path / "policy.yaml").diversity
        assert found is not None
        assert found.l == 3


def test_every_example_of_the_policy_page_is_part_of_a_policy_without_faults(tmp_path: Path) -> None:
    page = ROOT / "docs" / "policy.md"
    _, *parts = fences(page, "yaml")
    (taxonomy,) = fences(page, "csv")
    (tmp_path / "job.csv").write_text(taxonomy, encoding="utf-8")
    for number, part in enumerate(parts):
        path = tmp_path / f"policy{number}.yaml"
        path.write_text(f"{part}subject: every_record\nprivacy: {{k: 2}}\nstream: {{delta: 9}}\n", encoding="utf-8")
        assert Policy.load(path).clustered
    assert len(parts) == 10


def test_the_five_records_of_the_readme_are_input_and_output_of_the_quick_start(tmp_path: Path) -> None:
    output = tmp_path / "anonymous.csv"
    assert main(["pipe", str(QUICKSTART / "policy.yaml"), "-i", str(QUICKSTART / "visits.csv"), "-o", str(output)]) == 0
    released = [line.split(",") for line in output.read_text(encoding="utf-8").splitlines()[1:6]]
    visits = [line.split(",") for line in (QUICKSTART / "visits.csv").read_text(encoding="utf-8").splitlines()]
    shown = table(ROOT / "README.md", "patient")
    assert len(shown) == 5
    assert all(row[:4] in visits for row in shown)
    assert [row[5:] for row in shown] == released
    assert [row[4] for row in shown] == ["→"] * 5


def spans(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", FENCE.sub("", text))


def test_every_class_and_module_of_the_glossary_is_in_the_package() -> None:
    files = list(SOURCE.rglob("*.py"))
    known = {name for path in files for name in (path.stem, path.parent.name)}
    for path in files:
        known |= set(re.findall(r"^ *(?:async )?(?:class|def) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    rows = re.findall(r"^\| [^|]+ \| ([^|]*) \|", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)
    # Other words are keys of the policy and names of rules.
    places = {path.name for path in SOURCE.iterdir() if path.is_dir()}
    found = [span for row in rows for span in spans(row)]
    names = [one for one in found if one.partition(".")[0] in places or re.match("_?[A-Z]+[a-z]", one)]
    assert len(names) > 30
    assert [one for one in names if not all(part in known or part.isupper() for part in one.split("."))] == []


def test_every_file_that_a_page_names_is_there() -> None:
    places = (ROOT, SOURCE, ROOT / "tests", ROOT / "tests" / "support")
    missing = [
        f"{page.relative_to(ROOT)}: {span}"
        for page in pages()
        if page.name != "CHANGELOG.md" and "reports" not in page.parts
        for span in spans(page.read_text(encoding="utf-8"))
        if re.fullmatch(r"[\w./-]+/[\w.-]+\.(?:py|yml|yaml|json|md|csv)", span)
        and not any((place / span).exists() for place in (*places, page.parent))
    ]
    assert missing == []
