"""Which paths in a file of this repository lead out of it: a clone may have nothing beside it."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

UP = re.compile(r"(?<![.\w])\.\.(?:/\.\.)*(?=[/\"'`)\s]|$)", re.MULTILINE)
ABSOLUTE = re.compile(
    r"(?<![\w./>~)}-])/(?:home|Users|root|work|mnt|media|srv|data|tmp)\b(?=/|[\"'`)\s]|$)", re.MULTILINE
)
HOME = re.compile(r"(?<![\w~/])~[/]|\$\{?HOME\b")
IN_PYTHON = re.compile(r"\bROOT\.parent|\bROOT / [\"']\.\.|\bPath\.home\b|[.]expanduser\b")
PARENTS = re.compile(r"\bPath\(__file__\)(?:\.\w+\(\))*\.parents\[(\d+)\]")


def outside(name: str, text: str) -> list[str]:
    """Return as ``FILE:LINE: TEXT`` what leads out of the repository: absolute paths, homes, too many parents."""
    depth = len(PurePosixPath(name).parts) - 1
    found = [m for m in UP.finditer(text) if m.group().count("..") > depth]
    patterns = (ABSOLUTE, HOME, IN_PYTHON) if name.endswith(".py") else (ABSOLUTE, HOME)
    found += [m for pattern in patterns for m in pattern.finditer(text)]
    found += [m for m in PARENTS.finditer(text) if int(m[1]) > depth]
    lines = [(text.count("\n", 0, m.start()) + 1, m.group()) for m in found]
    return [f"{name}:{line}: {shown}" for line, shown in sorted(lines)]
