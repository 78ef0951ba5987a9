"""Write docs/reports/privacy.md: run every test that uses the ledger, and put its rows into two tables."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.attacks import ATTACKS, Attack
from support.ledger import PAGE, ROOT, ROWS, RULES, WRITING, Row

__all__ = ["files_of_attacks", "main", "page", "standing"]

HEAD = """# Attacks, and how far they come

Written by `make privacy-table`, which runs the tests named here; do not edit. Every day's tests measure the figures
again and fail if one is above its bound or differs from what is printed. Every attacker knows the code, the policy and
the whole output. "Line" is a line of [SECURITY.md](../../SECURITY.md). s.e. is the standard error of a figure.
Data: [published data sets](../../tests/data/README.md), and subjects drawn from Zipf's law; seeds are fixed.

**Bounds.** A bound follows from the policy or from the design, as the column "bound from" says, and does not come from
the figure. Where no bound can be derived, the column says "none": SECURITY.md promises nothing there, and the tests
compare the figure with the printed one only. Two bounds are judgement, not derived: the 0.05 above 1/B of R2, and the
limits of R33. How often the last value of a cluster is guessed from the others (R13) depends on how wide clusters are,
so it has no bound: the grid only makes at least k - 1 values possible.

## All attacks
"""

UNDER_EACH = """
## Measured under each rule

Which records leave together is decided by a rule; `auto`, the default, is `block` from k = 7 on and `awo` below, and
`nearest` where `dominance` is asked for, which no other rule keeps: a policy that asks for both is refused. A bound
holds under each of them.

- **`block` and `awo` lose less, and so their clusters are tighter.** Who knows the other members (R13), or sends false
  ones that resemble a person (R29), or knows that most others have none of an amount (R16), mostly comes farther than
  under `nearest`. None of the three is promised away; `resolution`, trusted writers and `dominance` are what helps.
  A policy may say `rule: nearest`.
- **`block` hides times of arrival better.** All that is held leaves at once, so that a time tells the transaction and
  no more, however the position is weighted (R2), unless delta is so short that a transaction has one or two clusters.
"""


def files_of_attacks() -> list[str]:
    """Return the test files that use the ledger, but for the one that tests the ledger."""
    files = sorted(path for path in (ROOT / "tests").rglob("test_*.py") if path.name != "test_table.py")
    return [str(path.relative_to(ROOT)) for path in files if "support.ledger import" in path.read_text("utf-8")]


def standing(attack: Attack, rows: Sequence[Row]) -> str:
    """Say in a few words what became of an attack; empty if nobody knows."""
    said = []
    if any(row.success for row in rows):
        said.append("measured")
    if any(not row.success for row in rows):
        said.append("closed by construction")
    if attack.missing:
        said.append(f"not there yet: {attack.missing}")
    if attack.outside:
        said.append(f"outside the promise: {attack.outside}")
    return "; ".join(said)


def page(rows: Sequence[Row]) -> str:
    """Return the page's text."""
    rows = sorted(rows, key=lambda row: (int(row.attack[1:]), row.name, row.test))
    by_attack = {name: [row for row in rows if row.attack == name] for name in ATTACKS}
    lines = [HEAD, "| id | attack | what became of it |", "|---|---|---|"]
    for name, attack in ATTACKS.items():
        lines.append(f"| {name} | {attack.what} | {standing(attack, by_attack[name])} |")
    lines += [UNDER_EACH, *_under_each(rows), "", "## Measured where the rule does not matter", ""]
    lines += [
        "| id | attack | attacker knows | success | bound | beside | bound from | test |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.success and not row.rule:
            cells = (row.attack, row.name, row.knows, row.success, row.bound, row.beside, row.source, f"`{row.test}`")
            lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "## Closed by construction", "", "| id | why there is nothing to measure | test |", "|---|---|---|"]
    lines += [f"| {row.attack} | {row.name} | `{row.test}` |" for row in rows if not row.success]
    return "\n".join(lines) + "\n"


def _under_each(rows: Sequence[Row]) -> list[str]:
    """Return one line for all rows that differ in the rule only."""
    lines = [
        f"| id | attack | attacker knows | {' | '.join(RULES)} | bound | bound from | test |",
        f"|---|---|---|{'---|' * len(RULES)}---|---|---|",
    ]
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        if row.rule:
            key = (row.attack, row.name, row.knows, row.bound, row.source, row.test)
            found.setdefault(key, {})[row.rule] = "; ".join(cell for cell in (row.success, row.beside) if cell)
    for (attack, name, knows, bound, source, test), under in found.items():
        cells = (attack, name, knows, *(under.get(rule, "") for rule in RULES), bound, source, f"`{test}`")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> int:
    """Run the tests and write the page; the exit code is that of pytest."""
    shutil.rmtree(ROWS, ignore_errors=True)
    options = ["-q", "-n", "auto", "-m", "not nightly"]
    command = [sys.executable, "-m", "pytest", *options, *files_of_attacks()]
    code = subprocess.run(command, cwd=ROOT, env=os.environ | {WRITING: "anew"}, check=False).returncode
    if code:
        print("some tests failed: the page is left as it was", file=sys.stderr)
        return code
    rows = [Row(**json.loads(path.read_text(encoding="utf-8"))) for path in sorted(ROWS.glob("R*.json"))]
    PAGE.write_text(page(rows), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(rows)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
