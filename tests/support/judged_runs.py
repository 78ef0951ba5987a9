"""Files of a run, and what the judge says of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.audit import Verdict, verify
from shoal.files import Files, run_batch, run_pipe
from shoal.policy import Policy
from shoal.tables import AlgorithmSpec

SIDE_FILES = ("evidence", "quarantine", "summary")


def write_lines(path: Path, lines: Iterable[object]) -> Path:
    """Write lines of a file; what is no text is written as JSON."""
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def released(
    folder: Path, policy: Policy, text: str | bytes, original: str = "original.jsonl", suffix: str = ""
) -> dict[str, Path]:
    """Release a file of this content; return the paths of all files by their roles."""
    paths = {"original": folder / original, "released": folder / f"released{suffix or Path(original).suffix}"}
    paths |= {name: folder / f"{name}.jsonl" for name in SIDE_FILES}
    paths["original"].write_bytes(text.encode() if isinstance(text, str) else text)
    source, target, evidence, quarantine, summary = map(str, paths.values())
    files = Files(source, target, evidence=evidence, quarantine=quarantine, summary=summary)
    if policy.stream is None:
        run_batch(policy, files, AlgorithmSpec("mdav"))
    else:
        run_pipe(policy, files)
    return paths


def judged(policy: Policy, paths: dict[str, Path], *given: str, **options: Any) -> Verdict:
    """Judge the files of a run with the side files that are given."""
    evidence, quarantine, summary = (paths[name] if name in given else None for name in SIDE_FILES)
    return verify(policy, paths["original"], paths["released"], evidence, summary, quarantine=quarantine, **options)
