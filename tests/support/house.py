"""Figures of the structure: lines and files of each package, its floors, and the files that twenty messages pass.

``make house`` prints them. A floor of a package is a module that imports only modules of lower floors.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "service" / "shoal"
ERRORS = ("Error", "Exception", "Violation")
"""How the names of classes of errors end."""


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def package_of(path: Path) -> str:
    """Return the first folder of a module below ``shoal``; an empty text for a module of ``shoal`` itself."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


def lines_and_files() -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        lines, files = found.get(package_of(path), (0, 0))
        found[package_of(path)] = lines + len(path.read_text(encoding="utf-8").splitlines()), files + 1
    return found


def floors() -> dict[str, int]:
    """Return the length of the longest chain of imports within each package."""
    imports: dict[str, set[str]] = defaultdict(set)
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    for name, path in names.items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module in names:
                imports[name].add(node.module)

    @cache
    def floor(name: str) -> int:
        room = package_of(names[name])
        return 1 + max((floor(other) for other in imports[name] if package_of(names[other]) == room), default=0)

    highest: dict[str, int] = defaultdict(int)
    for name, path in names.items():
        if path.name != "__init__.py":
            highest[package_of(path)] = max(highest[package_of(path)], floor(name))
    return dict(highest)


def error_classes() -> int:
    """Return the number of classes of errors: those that derive from a class whose name says so."""
    return sum(
        isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith(ERRORS) for base in node.bases)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(tree(path))
    )


def policy_keys() -> int:
    """Return the number of different keys with a description in the JSON Schema of a policy."""
    from shoal.policy.schema import policy_schema

    def keys(node: Any) -> Counter[str]:
        if isinstance(node, list):
            return sum(map(keys, node), Counter[str]())
        if not isinstance(node, dict):
            return Counter()
        own = Counter(node["properties"].keys()) if isinstance(node.get("properties"), dict) else Counter[str]()
        return own + sum(map(keys, node.values()), Counter[str]())

    return sum(keys(policy_schema()).values())


def files_on_the_way() -> list[str]:
    """Return the files that twenty messages pass from `PartitionTask.process` to their commit, kernels included."""
    paths = os.pathsep.join([str(PACKAGE.parent), str(ROOT / "tests")])
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": paths}
    command = [sys.executable, "-m", "support.house", "--trace"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def _trace() -> list[str]:
    from shoal.policy import Policy
    from shoal.policy.schema import Document
    from support.partition_tasks import START_MS, Message, RecordingSink, task_of

    attributes = {
        "who": {"role": "identifier", "subject": True, "type": "integer"},
        "age": {"role": "quasi_identifier", "scale": "numeric", "bounds": [0, 100], "integer": True},
        "job": {"role": "quasi_identifier", "scale": "nominal"},
        "note": {"role": "confidential", "type": "string"},
    }
    content = {"attributes": attributes, "privacy": {"k": 3}, "stream": {"delta": 8}}
    policy = Policy.from_document(Document.model_validate(content))
    sink = RecordingSink()
    task, _ = task_of(policy, sink)
    messages = [
        Message(i, START_MS, json.dumps({"who": i, "age": i * 7 % 90, "job": "ab"[i % 2], "note": ""}).encode())
        for i in range(20)
    ]
    codes: set[CodeType] = set()

    def note(frame: FrameType, _event: str, _argument: object) -> None:
        codes.add(frame.f_code)

    async def run() -> None:
        threading.setprofile(note)  # kernels that are interpreted run in a thread
        sys.setprofile(note)
        await task.process(messages)
        await task.commit()
        sys.setprofile(None)
        threading.setprofile(None)

    asyncio.run(run())
    assert sink.published, "nothing was committed"
    paths = {Path(code.co_filename) for code in codes}
    return sorted(path.relative_to(PACKAGE).as_posix() for path in paths if path.is_relative_to(PACKAGE))


def main() -> None:
    if sys.argv[1:] == ["--trace"]:
        print(json.dumps(_trace()))
        return
    sizes, high = lines_and_files(), floors()
    print(f"{'package':<14} {'lines':>7} {'files':>6} {'floors':>7}")
    for name, (lines, files) in sorted(sizes.items(), key=lambda item: -item[1][0]):
        print(f"{name or 'shoal':<14} {lines:>7,} {files:>6} {high.get(name, 0):>7}")
    print(f"{'total':<14} {sum(n for n, _ in sizes.values()):>7,} {sum(n for _, n in sizes.values()):>6}")
    way = files_on_the_way()
    print(f"twenty messages pass {len(way)} files: {', '.join(way)}")
    print(f"{policy_keys()} keys of a policy, {error_classes()} classes of errors")


if __name__ == "__main__":
    main()
