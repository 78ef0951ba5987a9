"""Small rules of the house that no linter knows."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "service"
MODULES = sorted(SOURCE.rglob("*.py"))
Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

MODULE_LINES = 400
FUNCTION_LINES = 60
KERNEL_LINES = 100
"""Of a function without its docstring: a kernel is one loop, and numba pays for every cut."""

CATCH_ALL = {
    "shoal/cli/command_line.py": "the last error handler: an unknown error ends as one line without its text",
    "shoal/files/outputs.py": "a half-written file is removed whatever happened, and the error goes on",
    "shoal/stage/supervisor.py": "what a thread has ended with is raised where it is waited for",
    "shoal/kafka/worker.py": "an opened producer is closed whatever happened, and the error goes on",
}
"""Where everything may be caught, and why."""

UNITS = ("_total", "_seconds", "_bytes", "_records", "_positions", "_info")
UNITLESS = {
    "shoal_records_held": "the unit comes first, as in the counter beside it",
    "shoal_cluster_size": "records of a cluster: the name is the literature's",
    "shoal_cluster_subjects": "the unit is the subject",
    "shoal_position_weight": "a weight has no unit",
    "shoal_ready": "0 or 1",
}

FOREIGN = (
    "py" + "pi.org",
    "files.python" + "hosted",
    "repo1.ma" + "ven",
    "repo.ma" + "ven",
    "/wo" + "rk/",
    "/ro" + "ot/",
)
"""Hosts of registries and paths of one machine: whoever clones this has others."""


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def definitions(module: ast.Module) -> Iterator[Definition]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def exported(module: ast.Module) -> list[str] | None:
    for node in module.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def defined(module: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(leaf.id for target in targets for leaf in ast.walk(target) if isinstance(leaf, ast.Name))
    return names


def sorted_as_the_linter_does(names: list[str]) -> list[str]:
    def rank(name: str) -> tuple[int, list[tuple[int, str]]]:
        parts = [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
        return (0 if name.isupper() else 1 if name[:1].isupper() else 2), parts

    return sorted(names, key=rank)


def module_of(imported: str) -> Path | None:
    base = SOURCE.joinpath(*imported.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def imports_within() -> Iterator[tuple[Path, Path, str]]:
    """Importing module, imported module, name."""
    for path in MODULES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "shoal":
                target = module_of(node.module)
                for alias in node.names:
                    if target is not None and module_of(f"{node.module}.{alias.name}") is None:
                        yield path, target, alias.name


def documented_parameters(docstring: str) -> list[str] | None:
    """Names under ``Parameters`` of a numpydoc docstring, None without that section."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n-{3,}$|\Z)", docstring, re.DOTALL | re.MULTILINE)
    if section is None:
        return None
    heads = re.findall(r"^(\S[^\n]*)$", section.group(1), re.MULTILINE)
    return [name.strip().lstrip("*") for head in heads for name in head.split(" : ")[0].split(",")]


def parameters(function: Definition) -> list[str]:
    spec = function.args
    listed = [
        *spec.posonlyargs,
        *spec.args,
        *filter(None, [spec.vararg]),
        *spec.kwonlyargs,
        *filter(None, [spec.kwarg]),
    ]
    return [argument.arg for argument in listed if argument.arg not in {"self", "cls"}]


def fields(owner: ast.ClassDef) -> list[str]:
    """Parameters of a class: of its __init__, or the public fields it declares."""
    for node in owner.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return parameters(node)
    names = [ast.unparse(node.target) for node in owner.body if isinstance(node, ast.AnnAssign)]
    return [name for name in names if not name.startswith("_")]


def length(function: Definition) -> int:
    """Lines of a function without decorators and docstring."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        lines -= (first.end_lineno or 0) - first.lineno + 1
    return lines


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_module_is_longer_than_one_can_hold_in_mind(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MODULE_LINES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_function_is_longer_than_a_screen(path: Path) -> None:
    limit = KERNEL_LINES if "clustering" in path.parts else FUNCTION_LINES
    assert {f.name: length(f) for f in definitions(tree(path)) if length(f) > limit} == {}


@pytest.mark.parametrize("path", [path for path in MODULES if not path.name.startswith("_")], ids=name_of)
def test_every_public_module_says_what_it_offers(path: Path) -> None:
    offered = exported(tree(path))
    assert offered is not None, "no __all__"
    assert offered == sorted_as_the_linter_does(offered)
    assert set(offered) <= defined(tree(path)), "offered, but not there"


@pytest.mark.parametrize("path", [path for path in MODULES if path.name == "__init__.py"], ids=name_of)
def test_a_room_offers_all_that_it_fetches_and_nothing_else(path: Path) -> None:
    fetched = {name for name in defined(tree(path)) if not name.startswith("_") and name != "annotations"}
    assert set(exported(tree(path)) or []) - {"__version__"} == fetched


def test_nothing_is_imported_that_its_module_does_not_offer() -> None:
    hidden = {
        f"{name_of(user)}: {name_of(owner)} does not offer {name}"
        for user, owner, name in imports_within()
        if name not in (exported(tree(owner)) or [])
    }
    assert hidden == set()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_documented_parameters_are_the_real_ones(path: Path) -> None:
    wrong: dict[str, list[str]] = {}
    for node in ast.walk(tree(path)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        documented = documented_parameters(ast.get_docstring(node) or "")
        real = fields(node) if isinstance(node, ast.ClassDef) else parameters(node)
        if documented is not None and documented != real:
            wrong[node.name] = documented
    assert wrong == {}


def test_the_reader_of_docstrings_reads_them() -> None:
    docstring = (
        "Do.\n\nParameters\n----------\nfirst, second : int\n    About.\n*rest\n    More.\n\nReturns\n-------\nint\n"
    )
    assert documented_parameters(docstring) == ["first", "second", "rest"]
    assert documented_parameters("Do.\n\nReturns\n-------\nint\n") is None


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_commands_print(path: Path) -> None:
    calls = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
    prints = [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
    assert prints == [] or name_of(path).startswith("shoal/cli/")


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_errors_are_caught_by_name(path: Path) -> None:
    handlers = [node for node in ast.walk(tree(path)) if isinstance(node, ast.ExceptHandler)]
    wide = [
        handler.lineno
        for handler in handlers
        if handler.type is None or {"Exception", "BaseException"} & set(re.findall(r"\w+", ast.unparse(handler.type)))
    ]
    assert wide == [] or name_of(path) in CATCH_ALL


def test_every_metric_carries_its_unit() -> None:
    path = SOURCE / "shoal" / "observability" / "metrics.py"
    constants = [node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Constant)]
    names = {text for text in constants if isinstance(text, str) and re.fullmatch(r"shoal_[a-z_]+", text)}
    assert names
    assert {name for name in names if not name.endswith(UNITS)} <= UNITLESS.keys()


def test_no_file_names_a_registry_or_a_place_on_one_machine() -> None:
    found = []
    for path in tracked():
        text = path.read_text(encoding="utf-8", errors="ignore")
        found += [f"{path.relative_to(ROOT)}: {pattern}" for pattern in FOREIGN if pattern in text]
    assert found == []
