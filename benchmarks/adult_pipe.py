"""One run of `shoal pipe` on all of Adult: what it publishes, what the judge and pycanon say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from adult import ATTRIBUTES, CONFIDENTIAL, MISSING, messages
from adult_release import Release, release_of
from pycanon import anonymity

__all__ = ["NAMES", "SHOAL", "Piped", "clusters_of", "frame_of", "piped"]

SHOAL = str(Path(sys.executable).with_name("shoal"))
NAMES = [kind.name for kind in ATTRIBUTES]

Records = Sequence[dict[str, Any]]


class Piped(NamedTuple):
    """A run of `shoal pipe`: its release, how many records it got, failures of the judge, smallest class of pycanon.

    ``published`` are the records, cluster by cluster, and ``lines`` the same as bytes, sorted.
    """

    release: Release
    records: int
    violations: int
    smallest: int
    published: Records
    lines: list[bytes]


def piped(folder: Path, document: dict[str, Any]) -> Piped:
    """Run `shoal pipe` and `shoal verify` on the whole table."""
    records, policy = messages(), folder / "policy.yaml"
    policy.write_text(json.dumps(document), encoding="utf-8")
    files = {name: folder / f"{name}.jsonl" for name in ("input", "output", "evidence", "quarantine")}
    verdict = folder / "verdict.json"
    files["input"].write_bytes(b"\n".join(records) + b"\n")
    where = ["--evidence", str(files["evidence"]), "--quarantine", str(files["quarantine"])]
    source, target = str(files["input"]), str(files["output"])
    subprocess.run([SHOAL, "pipe", str(policy), "-i", source, "-o", target, *where], check=True)
    judge = [SHOAL, "verify", str(policy), "--original", source, "--released", target, *where, "--json", str(verdict)]
    subprocess.run(judge, check=False, stdout=subprocess.DEVNULL)
    found = json.loads(verdict.read_text(encoding="utf-8"))
    violations = sum(check["failed"] for check in found["checks"])
    published, evidence = (
        [json.loads(line) for line in files[name].read_text(encoding="utf-8").splitlines()]
        for name in ("output", "evidence")
    )
    return Piped(
        release_of(published, evidence),
        len(records),
        violations if found["outcome"] == "holds" else max(violations, 1),
        int(anonymity.k_anonymity(frame_of(published), NAMES)),
        published,
        sorted(files["output"].read_bytes().splitlines()),
    )


def frame_of(published: Records) -> pd.DataFrame:
    """Return published records as a table of texts for pycanon: the quasi-identifiers and the occupation."""
    names = [*NAMES, CONFIDENTIAL]
    return pd.DataFrame([{name: json.dumps(record[name]) for name in names} for record in published])


def clusters_of(run: Piped) -> list[list[str]]:
    """Return the confidential values of each cluster; a missing one is the empty text."""
    clusters: list[list[str]] = [[] for _ in range(int(run.release.classes.max()) + 1)]
    for record, label in zip(run.published, run.release.classes.tolist(), strict=True):
        value = record[CONFIDENTIAL]
        clusters[label].append("" if value in {None, MISSING} else value)
    return clusters
