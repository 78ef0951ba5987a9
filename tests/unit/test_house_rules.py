"""Rules for the source that no linter checks."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

from support.repository_paths import outside

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "service"
MODULES = sorted(SOURCE.rglob("*.py"))
Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

FUNCTION_LINES = 60
KERNEL_LINES = 100
"""Longest kernel, without its docstring: a kernel is one loop, and each call from it costs time."""

UNITS = ("_total", "_seconds", "_bytes", "_records", "_positions", "_info")
UNITLESS = {
    "shoal_records_held": "the unit is the word before the last, as in shoal_records_total",
    "shoal_cluster_size": "the number of records; cluster size is the term of the literature",
    "shoal_cluster_subjects": "the number of subjects",
    "shoal_position_weight": "a weight has no unit",
    "shoal_partitions_opening": "partitions",
    "shoal_partitions_unreachable": "partitions",
    "shoal_ready": "0 or 1",
    "shoal_protects_values": "0 or 1",
    "shoal_cluster_values_min": "the number of distinct values",
    "shoal_cluster_value_share_max": "a share",
    "shoal_cluster_distance_max": "a distance from 0 to 1",
    "shoal_attribute_loss": "a share",
}

MACHINE_SPECIFIC = (
    "py" + "pi.org",
    "files.python" + "hosted",
    "repo1.ma" + "ven",
    "repo.ma" + "ven",
    "/wo" + "rk/",
    "/ro" + "ot/",
)
"""Addresses of package registries and paths of one machine: those of another clone differ."""


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def definitions(module: ast.Module) -> Iterator[Definition]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


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
        for function in definitions(tree(path))
        if length(function) > (KERNEL_LINES if "clustering" in path.parts else FUNCTION_LINES)
    ]
    assert long == []


def test_documented_parameters_are_those_of_the_signature() -> None:
    wrong = []
    for path in MODULES:
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            documented = documented_parameters(ast.get_docstring(node) or "")
            real = fields(node) if isinstance(node, ast.ClassDef) else parameters(node)
            if documented is not None and documented != real:
                wrong.append(f"{name_of(path)}:{node.lineno}: {node.name} documents {documented}, not {real}")
    assert wrong == []
    docstring = "Do.\n\nParameters\n----------\nfirst, second : int\n    About.\n*rest\n\nReturns\n-------\nint\n"
    assert documented_parameters(docstring) == ["first", "second", "rest"]
    assert documented_parameters("Do.\n\nReturns\n-------\nint\n") is None


def test_every_metric_name_ends_with_its_unit() -> None:
    path = SOURCE / "shoal" / "observability" / "metrics.py"
    constants = [node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Constant)]
    names = {text for text in constants if isinstance(text, str) and re.fullmatch(r"shoal_[a-z_]+", text)}
    assert len(names) > 25
    assert {name for name in names if not name.endswith(UNITS)} <= UNITLESS.keys()


def test_only_tests_of_benchmarks_import_benchmarks() -> None:
    theirs = {path.stem for path in (ROOT / "benchmarks").iterdir() if path.suffix == ".py" or path.name == "papers"}
    assert {"bench", "papers", "streams"} <= theirs
    # Only such files are parsed: an import begins on a line of its own.
    importing = re.compile(rf"^\s*(?:from|import)\s+(?:{'|'.join(sorted(theirs))})\b", re.MULTILINE)
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path.parent.name != "benchmarks" and importing.search(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom | ast.Import)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
        if name.partition(".")[0] in theirs
    ]
    assert found == []


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    found = []
    for path in tracked():
        text = path.read_text(encoding="utf-8", errors="ignore")
        found += [f"{path.relative_to(ROOT)}: {pattern}" for pattern in MACHINE_SPECIFIC if pattern in text]
    assert found == []


PLANTED = {
    "tests/unit/test_x.py": [
        "ROOT = Path(__file__).resolve().parents[2]\nDATA = ROOT.parent / 'data'",
        "DATA = Path(__file__).parents[3] / 'data'",
        "HERE = Path(__file__).parent\n\ndef data():\n    return HERE.parents[2]",
        "def data():\n    return ROOT / '.{dots}'",
        "DATA = '.{dots}/.{dots}/.{dots}/data'",
        "CACHE = Path.home() / 'cache'",
        "CACHE = Path('x').expanduser()",
        "CACHE = '~{slash}cache'",
        "DATA = Path('{slash}home/one/data')",
    ],
    "benchmarks/x.py": ["from papers.common import ROOT\n\nDATA = ROOT.parent"],
    "docs/x.md": ["[the data](.{dots}/.{dots}/data)", "`{slash}work/data`"],
    "Makefile": ["\tcp .{dots}/data/x.csv .", "\tcp $HOM{e}/x.csv ."],
    ".ci/run": ['cd "$(dirname "$0")/.{dots}/.{dots}"'],
}
"""Files with a path that leads out of the repository; written so that this file holds none."""
WITHIN = {
    "tests/unit/test_x.py": "ROOT = Path(__file__).parents[2]\nLOG = '/dev/null'\nA = Path(x).parent.parent.parent",
    "docs/adr/x.md": "[a page](../../README.md), https://example.org/home/x, and so on ...",
    ".ci/run": 'cd "$(dirname "$0")/.."',
}
"""Files with paths that stay inside, or that are none."""


def test_paths_that_lead_out_of_the_repository_are_found() -> None:
    for name, texts in PLANTED.items():
        for text in texts:
            planted = text.format(dots=".", slash="/", e="E")
            assert outside(name, planted) != [], f"{name}: {planted}"
    assert outside("docs/x.md", "one\ntwo ~{}x".format("/")) == ["docs/x.md:2: ~{}".format("/")]
    for name, text in WITHIN.items():
        assert outside(name, text) == []


def test_nothing_beside_the_package_names_a_path_outside_the_repository() -> None:
    found = []
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        checked = name.startswith(("tests/", "benchmarks/", "docs/", "deploy/", ".ci/")) or "/" not in name
        if checked and path.suffix not in {".csv", ".gz"}:  # these are data
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
