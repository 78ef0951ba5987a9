"""Outputs of Shoal as they were before its modules were renamed: written once, compared ever since.

Only what users call is called: the command ``shoal`` as the distribution declares it, and the four names of the
package (`python_record`). Recorded are hashes of released bytes, evidence and references; exit codes; summaries
(without their speed) and verdicts; what `shoal check` prints; for a few cases all outputs as text.

- ``python tests/golden/record/recorder.py --write`` writes record.json anew. Do so only where an output is meant to
  change, and say which.
- ``python tests/golden/record/recorder.py --out FILE`` writes what the code does now to another file.

Nothing recorded depends on the clock, on the hash of subjects (keyed anew in each process) or on the order of a
set: PYTHONHASHSEED and the temporary folder may differ. `--follow`, in which the clock decides, is left out.
Numbers of summaries and verdicts are kept to 12 significant digits, Parquet files as schema and rows, since their
bytes are those of the installed pyarrow. The sentences of verdicts are recorded in one place, ``wording``.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))

from golden.record.cases import Case, batch_cases, refused_policies, stream_cases  # noqa: E402
from golden.record.inputs import lines, records, write_table  # noqa: E402
from golden.record.python import python_record  # noqa: E402
from shoal.kernels.jit import use_compiled  # noqa: E402

__all__ = ["RECORD", "differences", "dumped", "recorded", "restricted", "rounded", "stable_summary", "stable_verdict"]

RECORD = HERE / "record.json"
Record = dict[str, Any]
_SPEED = ("elapsed_s", "records_per_s")
_LONGEST_SHOWN = 60
_DIGITS = 12
_NUMBER = re.compile(r"\d+(\.\d+)?")


class Command:
    """The command, run in this process; its standard error is not recorded."""

    def __init__(self) -> None:
        (declared,) = [one for one in entry_points(group="console_scripts") if one.name == "shoal"]
        self._main: Callable[[], int] = declared.load()

    def __call__(self, *arguments: str) -> tuple[int, str]:
        """Return exit code and standard output."""
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        before, sys.argv = sys.argv, ["shoal", *arguments]
        try:
            with redirect_stdout(out), redirect_stderr(io.StringIO()):
                code = self._main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            sys.argv = before
        out.seek(0)
        return code, out.read()


# ---------------------------------------------------------------------- what is kept of an output


def rounded(value: Any) -> Any:
    """Return a JSON value with its numbers kept to 12 significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def stable_summary(text: str) -> str:
    """Return a summary on one line, without what the clock says."""
    told = {name: value for name, value in json.loads(text).items() if name not in _SPEED}
    return json.dumps(rounded(told), ensure_ascii=False)


def stable_verdict(text: str, wording: dict[str, str]) -> Record:
    """Return a verdict as figures; its sentences are collected in ``wording``, numbers in them as ``#``."""
    verdict = json.loads(text)
    checks = []
    for one in verdict["checks"]:
        wording[f"check {one['name']}"] = _NUMBER.sub("#", one["claim"])
        wording |= {f"note of {one['name']}: {_NUMBER.sub('#', one['note'])}": ""} if one["note"] else {}
        wording["keys of a check"] = ", ".join(sorted(one))
        figures = json.dumps([rounded(one[name]) for name in ("examined", "failed", "worst")] + one["places"])
        wording[f"unit of {one['name']}"] = one["unit"]
        checks.append(f"{one['name']} {one['status']} {figures}")
    told = {name: verdict[name] for name in ("undecided", "not_examined")}
    told |= {name: [one["text"] for one in verdict[name]] for name in ("causes", "warnings")}
    for name, sentences in told.items():
        wording |= {f"{name}: {_NUMBER.sub('#', sentence)}": "" for sentence in sentences}
    about = {name: verdict[name] for name in ("outcome", "verified", "exit_code", "worth", "counts", "measures")}
    about |= {name: len(sentences) for name, sentences in told.items()}
    wording["keys of a verdict"] = ", ".join(sorted(verdict))
    return {"checks": "; ".join(checks), "figures": json.dumps(rounded(about), ensure_ascii=False)}


def kept(path: Path, *, shown: bool) -> Any:
    """Return a file as its hash and size, or as its lines; None where there is no file."""
    if not path.exists():
        return None
    raw = path.read_bytes() if path.suffix != ".parquet" else _rows(path)
    found = raw.split(b"\n")
    if shown:
        return [line.decode("utf-8", "backslashreplace") for line in found[:_LONGEST_SHOWN]] + [_hash(raw)]
    return f"{_hash(raw)}, {len(raw)} bytes, {len(found) - 1} lines"


def _hash(raw: bytes) -> str:
    return f"sha256 {hashlib.sha256(raw).hexdigest()}"


def _rows(path: Path) -> bytes:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    rows = [json.dumps(row, ensure_ascii=False) for row in table.to_pylist()]
    return ("\n".join([f"{one.name}: {one.type}" for one in table.schema] + rows) + "\n").encode()


# ---------------------------------------------------------------------- cases


def case_record(case: Case, command: Command, wording: dict[str, str]) -> Record:
    """Run a case in the current folder and return what it gave."""
    kind = case.name.split()[0]
    for path in Path().iterdir():
        path.unlink()
    source = _write_input(case, kind)
    target = f"out.{case.target}"
    Path("policy.json").write_text(json.dumps(case.document), encoding="utf-8")
    aside = ["--summary", "summary.json", "--quarantine", "quarantine.jsonl"]
    if "blocks=2" not in case.arguments:
        aside = ["--evidence", "evidence.jsonl", *aside]
    made, _ = command(kind, "policy.json", "-i", source, "-o", target, *case.arguments, *aside)
    found: Record = {"exit": made}
    if made and not Path(target).exists():
        found["files"] = sorted(one.name for one in Path().iterdir())
        return found
    for name in (target, "evidence.jsonl", "quarantine.jsonl"):
        found[name] = kept(Path(name), shown=case.shown)
    found["summary"] = stable_summary(Path("summary.json").read_text(encoding="utf-8"))
    given = list(aside)
    if kind == "batch" and "stream" in case.document:
        given.append("--table")
    judged, _ = command(
        *("verify", "policy.json", "--original", source, "--released", target, *given, "--json", "verdict.json")
    )
    found["verify exit"] = judged
    if Path("verdict.json").exists():
        found["verdict"] = stable_verdict(Path("verdict.json").read_text(encoding="utf-8"), wording)
    return found


def _write_input(case: Case, kind: str) -> str:
    made = records(case.count, seed=len(case.form) + case.count)
    source = Path(f"in.{'jsonl' if case.form == 'messages' else case.form}")
    if case.form == "parquet":
        write_table(source, made, case.fields)
        return source.name
    spelled = lines(made, case.form, case.fields, broken=case.broken and kind == "pipe")
    if case.document.get("csv") and case.form == "csv":
        source.write_bytes(("\r\n".join(_in_dialect(spelled)) + "\r\n").encode())
    else:
        source.write_text("\n".join(spelled) + "\n", encoding="utf-8")
    return source.name


def _in_dialect(spelled: list[str]) -> list[str]:
    """Write lines of CSV with semicolons between cells and a comma in numbers."""
    import csv

    cells = list(csv.reader(spelled))
    out = io.StringIO()
    writer = csv.writer(out, delimiter=";", lineterminator="\n")
    writer.writerow(cells[0])
    writer.writerows([one.replace(".", ",") for one in row] for row in cells[1:])
    return out.getvalue().splitlines()


def check_record(case: Case, command: Command) -> Record:
    """Return what `shoal check` says of a case's policy: its fingerprint, the rule, a hash of all."""
    Path("policy.json").write_text(json.dumps(case.document), encoding="utf-8")
    code, text = command("check", "policy.json")
    if code:
        return {"exit": code}
    resolved = json.loads(text)
    if resolved.pop("left_open", None):  # sentences, which may be worded anew
        text = json.dumps(resolved, indent=2, ensure_ascii=False) + "\n"
    if case.shown:
        return {"exit": code, "stdout": text.splitlines()}
    return {
        "exit": code,
        "fingerprint": resolved["fingerprint"],
        "rule": resolved.get("stream", {}).get("rule"),
        "stdout": _hash(text.encode()),
    }


def recorded(only: str = "", every: int = 1) -> Record:
    """Return the record as of the code that is installed: whole, or of every such case whose name contains a text."""
    command = Command()
    found: Record = {"check": {}, "outputs": {}, "python": {}, "refused policies": {}, "wording": {}}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for case in [*stream_cases(), *batch_cases()][::every]:
            if only in case.name:
                found["outputs"][case.name] = case_record(case, command, found["wording"])
                found["check"][case.name] = check_record(case, command)
        for name, document in refused_policies():
            Path("policy.json").write_text(json.dumps(document), encoding="utf-8")
            found["refused policies"][name] = command("check", "policy.json")[0]
        if not only:
            found["python"] = python_record()
    return found


# ---------------------------------------------------------------------- compare


def restricted(was: Record, now: Record) -> Record:
    """Return a whole record without the cases, and without their sentences, that another one leaves out."""
    parts = ("check", "outputs", "wording")
    return was | {part: {name: one for name, one in was[part].items() if name in now[part]} for part in parts}


def dumped(record: Record) -> str:
    """Return the text of a record, the same for equal records."""
    return json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def differences(was: Any, now: Any, place: str = "") -> list[str]:
    """Return one line per part that differs: its place in the record, what it was and what it is."""
    if isinstance(was, dict) and isinstance(now, dict):
        found = []
        for name in sorted({*was, *now}):
            found += differences(was.get(name), now.get(name), f"{place} > {name}" if place else name)
        return found
    if was == now and type(was) is type(now):
        return []
    if isinstance(was, list) and isinstance(now, list):
        at = next((i for i, (one, other) in enumerate(zip(was, now, strict=False)) if one != other), None)
        at = min(len(was), len(now)) if at is None else at
        return [f"{place}, item {at}: was {was[at : at + 1]}, is {now[at : at + 1]}"]
    return [f"{place}: was {was!r}, is {now!r}"]


def main() -> None:
    """Write the record, or what the code does now."""
    parser = argparse.ArgumentParser(description="Record the outputs of Shoal.")
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("--write", action="store_true", help="write record.json anew")
    either.add_argument("--out", metavar="FILE", help="write to another file")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name contains this text")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only the first case and each Nth after it")
    parser.add_argument("--compiled", action="store_true", help="use compiled kernels from the beginning")
    options = parser.parse_args()
    if options.compiled:
        use_compiled()
    if options.write and (options.only or options.every > 1):
        parser.error("--write needs all cases")
    os.environ["COLUMNS"] = "100"
    target = RECORD if options.write else Path(options.out).resolve()
    target.write_text(dumped(recorded(options.only, options.every)), encoding="utf-8")


if __name__ == "__main__":
    main()
