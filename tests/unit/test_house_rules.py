"""Rules for the source that no linter checks."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

from support.house import error_classes, files_on_the_way, floors, lines_and_files, tree
from support.repository_paths import outside

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "service"
MODULES = sorted(SOURCE.rglob("*.py"))

FUNCTION_LINES = 60
KERNEL_LINES = 100
"""Longest kernel, without its docstring: a kernel is one loop, and each call from it costs time."""

MACHINE_SPECIFIC = (
    "py" + "pi.org",
    "files.python" + "hosted",
    "repo1.ma" + "ven",
    "repo.ma" + "ven",
    "/wo" + "rk/",
    "/ro" + "ot/",
)
"""Addresses of package registries and paths of one machine: those of another clone differ."""


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without decorators and docstring."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        lines -= (first.end_lineno or 0) - first.lineno + 1
    return lines


def matrix_products(modules: dict[str, ast.Module]) -> list[str]:
    """Return where `@`, `dot` and the like are: BLAS adds in an order that depends on the processor.

    A measure of a finished table decides nothing.
    """
    named = {"dot", "inner", "matmul", "tensordot", "vdot"}
    return [
        f"{name}:{node.lineno}"
        for name, module in modules.items()
        for node in ast.walk(module)
        if (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult))
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in named)
    ]


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_function_has_more_than_60_lines_and_no_kernel_more_than_100() -> None:
    long = [
        f"{name_of(path)}:{function.lineno}: {function.name} has {length(function)} lines"
        for path in MODULES
        for function in ast.walk(tree(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        if length(function) > (KERNEL_LINES if "clustering" in path.parts else FUNCTION_LINES)
    ]
    assert long == []


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    found = []
    for path in tracked():
        text = path.read_text(encoding="utf-8", errors="ignore")
        found += [f"{path.relative_to(ROOT)}: {pattern}" for pattern in MACHINE_SPECIFIC if pattern in text]
    assert found == []


def test_nothing_beside_the_package_names_a_path_outside_the_repository() -> None:
    found = []
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        checked = name.startswith(("tests/", "benchmarks/", "docs/", "deploy/", ".ci/")) or "/" not in name
        if checked and path.suffix not in {".csv", ".gz", ".png"}:  # these are data
            found += outside(name, path.read_text(encoding="utf-8", errors="ignore"))
    assert found == []


def test_no_decision_depends_on_a_matrix_product() -> None:
    assert matrix_products({"x.py": ast.parse("a @ b\nnp.dot(a, b)\na * b")}) == ["x.py:1", "x.py:2"]
    deciding = ("shoal/kernels/", "shoal/protection/", "shoal/scales/", "shoal/streams/", "shoal/tables/")
    measures = "shoal/tables/measures.py"
    parsed = {name_of(path): tree(path) for path in MODULES}
    modules = {name: one for name, one in parsed.items() if name.startswith(deciding) and name != measures}
    assert len(modules) > 40
    assert matrix_products(modules) == []


def test_twenty_messages_pass_few_files_from_process_to_the_commit_and_packages_have_few() -> None:
    way = files_on_the_way()
    assert {"kafka/task.py", "kafka/transactions.py", "streams/pipeline.py", "formats/json.py"} <= set(way)
    assert len(way) <= 29
    assert sum(files for _, files in lines_and_files().values()) <= 200
    assert max(floors().values()) <= 8
    assert error_classes() <= 14
