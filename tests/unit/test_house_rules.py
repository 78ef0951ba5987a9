"""Rules for the source that no linter checks."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
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

CATCH_ALL = {
    "shoal/cli/command_line.py": "the last error handler: an unknown error ends as one line without its text",
    "shoal/files/files.py": "a half-written file is removed whatever happened, and the error goes on",
    "shoal/kafka/retries.py": "the error of a thread is raised again by the caller that waits for the thread",
}
"""Modules that may catch every exception, and why."""

UNEXPORTED = {"annotations", "import_module", "TYPE_CHECKING"}
"""What a package may import and not export: for annotations, and to import a module when it is needed."""

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


METAPHORS = (
    {"aside", "border", "cheat", "course", "desk", "door", "draft", "fate", "hand", "host"}
    | {"keeper", "lane", "ledger", "parcel", "plan", "promise", "reunion", "room", "roster", "seal"}
    | {"shell", "spine", "story", "stray", "swallow", "tally", "torture", "trail", "turn", "witness"}
)
"""Words that class and module names do not contain; docs/glossary.md has the terms to use instead."""


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


def statements(module: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements of a module, and those that only type checkers read."""
    for node in module.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from node.body
        else:
            yield node


def defined(module: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in statements(module):
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


def catches_all(handler: ast.ExceptHandler) -> bool:
    named = set() if handler.type is None else set(re.findall(r"\w+", ast.unparse(handler.type)))
    return handler.type is None or bool(named & {"Exception", "BaseException"})


def repeated_classes(modules: dict[str, ast.Module]) -> list[str]:
    """Return each class name that is defined more than once, with the locations of its definitions."""
    found: dict[str, list[str]] = {}
    for module, parsed in modules.items():
        for node in ast.walk(parsed):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(f"{module}:{node.lineno}")
    return [f"{name}: {', '.join(locations)}" for name, locations in sorted(found.items()) if len(locations) > 1]


def words_of(name: str) -> set[str]:
    """Return the words of a name in CamelCase or snake_case, in lower case, with and without a plural s."""
    words = {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}
    return words | {word.removesuffix("s") for word in words}


def metaphors(modules: dict[str, ast.Module]) -> list[str]:
    """Return the module and class names that hold a word of the list."""
    names = [(module, part) for module in modules for part in module.removesuffix(".py").split("/")]
    names += [
        (f"{module}:{node.lineno}", node.name)
        for module, parsed in modules.items()
        for node in ast.walk(parsed)
        if isinstance(node, ast.ClassDef)
    ]
    return sorted({f"{where}: {name}" for where, name in names if words_of(name) & METAPHORS})


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


def test_every_public_module_has_a_complete_and_sorted_all() -> None:
    wrong = []
    for path in MODULES:
        if path.name.startswith("_"):
            continue
        names = exported(tree(path))
        if names is None:
            wrong.append(f"{name_of(path)}: no __all__")
            continue
        if names != sorted_as_the_linter_does(names):
            wrong.append(f"{name_of(path)}: __all__ is not sorted")
        wrong += [f"{name_of(path)}: exports {name}, which is not defined" for name in set(names) - defined(tree(path))]
    assert wrong == []


def test_a_package_exports_exactly_what_its_init_imports() -> None:
    wrong = {}
    for path in MODULES:
        if path.name == "__init__.py":
            fetched = {name for name in defined(tree(path)) if not name.startswith("_") and name not in UNEXPORTED}
            different = (set(exported(tree(path)) or []) - {"__version__"}) ^ fetched
            wrong.update({name_of(path): different} if different else {})
    assert wrong == {}


def test_modules_import_only_names_that_others_export() -> None:
    hidden = {
        f"{name_of(user)}: {name_of(owner)} does not export {name}"
        for user, owner, name in imports_within()
        if name not in (exported(tree(owner)) or [])
    }
    assert hidden == set()


def orphan_docstrings(tree: ast.Module) -> list[int]:
    """Return the lines of strings that stand directly after another string, so that they document nothing."""
    bodies = (getattr(node, "body", None) for node in ast.walk(tree))
    return [
        second.lineno
        for body in bodies
        if isinstance(body, list)
        for first, second in pairwise(body)
        if is_string(first) and is_string(second)
    ]


def is_string(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def test_no_string_stands_directly_after_another() -> None:
    assert orphan_docstrings(ast.parse('"""A."""\nX = 1\n"""B."""\nclass C:\n    y = 1\n    "D"\n    "E"\n')) == [7]
    found = [f"{module.relative_to(SOURCE)}:{line}" for module in MODULES for line in orphan_docstrings(tree(module))]
    assert found == []


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


def test_the_docstring_parser_finds_the_parameters() -> None:
    docstring = (
        "Do.\n\nParameters\n----------\nfirst, second : int\n    About.\n*rest\n    More.\n\nReturns\n-------\nint\n"
    )
    assert documented_parameters(docstring) == ["first", "second", "rest"]
    assert documented_parameters("Do.\n\nReturns\n-------\nint\n") is None


def test_only_the_command_line_prints() -> None:
    prints = [
        f"{name_of(path)}:{call.lineno}"
        for path in MODULES
        for call in ast.walk(tree(path))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"
    ]
    assert [location for location in prints if not location.startswith("shoal/cli/")] == []


def test_only_listed_modules_catch_every_exception() -> None:
    wide = [
        f"{name_of(path)}:{handler.lineno}"
        for path in MODULES
        for handler in ast.walk(tree(path))
        if isinstance(handler, ast.ExceptHandler) and catches_all(handler)
    ]
    assert [location for location in wide if location.partition(":")[0] not in CATCH_ALL] == []


def test_every_metric_name_ends_with_its_unit() -> None:
    folder = SOURCE / "shoal" / "observability"
    paths = [folder / f"{name}.py" for name in ("metrics",)]
    constants = [node.value for path in paths for node in ast.walk(tree(path)) if isinstance(node, ast.Constant)]
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


def test_no_file_has_the_marks_of_a_merge_conflict() -> None:
    mark = re.compile(r"^(<{7}|>{7}|[|]{7})", re.MULTILINE)
    texts = {path: path.read_text(encoding="utf-8", errors="ignore") for path in tracked()}
    assert [str(path.relative_to(ROOT)) for path, text in texts.items() if mark.search(text)] == []


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


def test_no_decision_depends_on_a_matrix_product() -> None:
    assert matrix_products({"x.py": ast.parse("a @ b\nnp.dot(a, b)\na * b")}) == ["x.py:1", "x.py:2"]
    deciding = ("shoal/kernels/", "shoal/protection/", "shoal/scales/", "shoal/streams/", "shoal/tables/")
    measures = "shoal/tables/measures.py"
    modules = {name: one for name, one in parsed_modules().items() if name.startswith(deciding) and name != measures}
    assert len(modules) > 40
    assert matrix_products(modules) == []


def parsed_modules() -> dict[str, ast.Module]:
    return {name_of(path): tree(path) for path in MODULES}


def test_repeated_class_names_are_found() -> None:
    once, twice = ast.parse("class A: ..."), ast.parse("class B:\n    class C: ...\nclass C: ...")
    assert repeated_classes({"one.py": once, "two.py": twice}) == ["C: two.py:3, two.py:2"]
    assert repeated_classes({"one.py": once, "two.py": once}) == ["A: one.py:1, two.py:1"]
    assert repeated_classes({"one.py": once}) == []


def test_metaphors_are_found_in_every_form_of_a_name() -> None:
    for word in METAPHORS:
        for name in (word.title(), f"_{word.title()}Map", f"Kafka{word.title()}s", f"HTTP{word.title()}"):
            assert metaphors({"x.py": ast.parse(f"class {name}: ...")}) == [f"x.py:1: {name}"]
        for module in (f"{word}.py", f"x/{word}s.py", f"x/my_{word}.py"):
            assert len(metaphors({module: ast.parse("")})) == 1
    for plain in ("Planet", "Returned", "Handler", "HandoffQueue", "Sealed", "Ghost", "Classroom"):
        assert metaphors({"x.py": ast.parse(f"class {plain}: ...")}) == []


def test_no_class_name_is_defined_twice() -> None:
    assert repeated_classes(parsed_modules()) == []


def test_no_class_or_module_is_named_with_a_metaphor() -> None:
    beside = [path for path in tracked() if path.suffix == ".py" and not path.is_relative_to(SOURCE)]
    assert {"tests", "benchmarks", "deploy"} <= {path.relative_to(ROOT).parts[0] for path in beside}
    modules = {path.relative_to(ROOT).as_posix(): tree(path) for path in beside}
    assert metaphors(parsed_modules() | modules) == []
