"""docs/reports/privacy.md says something about every attack, and names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from support.attack_results import PAGE, ROOT, Row, impossible, measured, printed_rows
from support.attacks import ATTACKS
from support.privacy_table import files_of_attacks, page, standing


@cache
def names_in(path: Path, *, calling: bool = False) -> set[str]:
    """Names of a file's functions, or of those of its tests that record a result."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if calling:
        functions = [
            one for one in functions if one.name.startswith("test_") and calls_of(one) & {"measured", "impossible"}
        ]
    return {one.name for one in functions}


def calls_of(function: ast.AST) -> set[str]:
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {called.id for called in calls if isinstance(called, ast.Name)}


def test_the_page_has_a_result_for_every_attack() -> None:
    rows = printed_rows()
    unanswered = [
        name for name, attack in ATTACKS.items() if not standing(attack, [row for row in rows if row.attack == name])
    ]
    assert unanswered == []
    assert list(ATTACKS) == [f"R{number}" for number in range(1, 43)]


def test_every_test_that_records_a_result_is_in_the_page() -> None:
    printed = {row.test for row in printed_rows()}
    using = {f"{file}::{name}" for file in files_of_attacks() for name in names_in(ROOT / file, calling=True)}
    assert using - printed == set(), "make privacy-table"


def test_the_page_is_what_its_rows_and_the_list_of_attacks_make() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(printed_rows())


def test_every_test_that_the_page_names_exists_and_records_a_result() -> None:
    files = files_of_attacks()
    for row in printed_rows():
        file, name = row.test.split("::")[0], row.test.split("::")[-1]
        assert file in files, file
        assert name in names_in(ROOT / file), row.test


def test_the_points_of_security_md_that_the_page_names_exist() -> None:
    listed = re.findall(r"^(\d+)\. ", (ROOT / "SECURITY.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = {number for attack in ATTACKS.values() for number in re.findall(r"points? ([\d, ]+)\)", attack.outside)}
    assert named
    assert {number for numbers in named for number in re.split(", ", numbers)} <= set(listed)


def test_a_success_above_its_bound_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("support.attack_results.ROWS", tmp_path)
    for name in ("_collected", "_not_returned"):
        monkeypatch.setattr(f"support.attack_results.{name}", [])
    with pytest.raises(AssertionError, match="above"):
        measured("R1", "x", knows="all", success=0.2, bound=0.1, source="here", error=0.03)
    measured("R1", "y", knows="all", success=0.2, bound=0.1, source="here", error=0.04)
    with pytest.raises(AssertionError, match="two attacks"):
        measured("R1", "y", knows="none", success=0.2, bound=0.3, source="here")
    with pytest.raises(AssertionError, match="is not an attack of the list"):
        impossible("R43", "never")


def test_a_figure_that_is_not_the_printed_one_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SHOAL_PRIVACY_TABLE", raising=False)
    for name in ("_collected", "_not_returned"):
        monkeypatch.setattr(f"support.attack_results.{name}", [])
    monkeypatch.setattr("support.attack_results.ROWS", tmp_path)
    monkeypatch.setattr("support.attack_results.PAGE", tmp_path / "page.md")
    rows = [Row("R1", name, "all", "0.200", "0.300", "other: 0.9", "here", "tests/x.py::test_y") for name in "xz"]
    (tmp_path / "page.md").write_text(page(rows))
    assert printed_rows() == rows
    measured("R1", "x", knows="all", success=0.2004, bound=0.3, source="here")
    with pytest.raises(AssertionError, match="make privacy-table"):
        measured("R1", "z", knows="all", success=0.22, bound=0.3, source="here")
