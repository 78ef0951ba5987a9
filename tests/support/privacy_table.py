"""Write docs/reports/privacy.md: run every test that records a result, and put its rows into two tables."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.attack_results import PAGE, ROOT, ROWS, RULES, WRITING, Row
from support.attacks import ATTACKS, Attack

HEAD = """# Attacks and their measured success

Written by `make privacy-table`, which runs the tests named here; do not edit. The tests measure the figures again and
fail if one is above its bound or differs from the printed one. `make test` runs each of these tests; of one with many
variants it measures one or a few under each rule, and `make nightly` the others. Every attacker knows the code, the
policy and the whole output. A point is one of the ten points of [SECURITY.md](../../SECURITY.md). s.e. is the standard
error of a figure. Data: [published data sets](../../tests/data/README.md), and subjects drawn from Zipf's law; seeds
are fixed.

**Bounds.** A bound follows from the policy or from the design, as the column "bound from" says, and does not come from
the figure. Where no bound can be derived, the column says "none": SECURITY.md guarantees nothing there, and the tests
compare the figure with the printed one only. Two bounds are judgement, not derived: the 0.05 above 1/B of R2, and the
0.1 of sizes in R20. How often the last value of a cluster is guessed from the others (R13) depends on how wide clusters
are, so it has no bound: the grid only makes at least k - 1 values possible.

## All attacks
"""

UNDER_EACH = """
## Measured under each rule

A rule decides which records are released together. `auto`, the default, selects `block` from k = 7 on and `awo` below.
Each bound holds under every rule that its row has a figure for.

- **`block` and `awo` lose less, and so their clusters are tighter.** Under `block`, the record of a person is alone
  among 36 false ones that are equal to it, or nearly so, more often than under `nearest` (R29). An attacker that
  knows the other members has about as much success under each rule (R13). Under which rule the second largest
  contributor works out the largest amount more often depends on k and on the resolution (R16). Shoal does not prevent
  these attacks; `resolution` and trusted writers reduce their success. A policy may set `rule: nearest`.
- **`block` hides times of arrival better.** All held records are released together, so a time identifies only the
  transaction, with any weight of the position (R2), except if a short delta leaves one or two clusters per transaction.
"""

AGREEMENT = """
## Other programs

`shoal verify`, pycanon 1.3.5 and anjana 1.2.3 judged tables of four data sets, made by three algorithms under k = 3, 5
and 8, without l, with distinct and with entropy l. Of 12 tables, all 60 figures agree: k, distinct l, entropy l (its
whole part), t (within 10⁻⁹; by rank, or all values equally far apart), and the largest share of a value. anjana takes
its measures from pycanon, so it is no third opinion. Both count records: where people have several, they cannot judge.
Their recursive l takes the rarest value for the most frequent one, and is left out. `make nightly` compares again
(`tests/privacy/test_outside_judge.py`).
"""


def files_of_attacks() -> list[str]:
    """Return the test files that record results of attacks, without the file that tests the recording."""
    files = sorted(path for path in (ROOT / "tests").rglob("test_*.py") if path.name != "test_table.py")
    return [str(path.relative_to(ROOT)) for path in files if "support.attack_results import" in path.read_text("utf-8")]


def standing(attack: Attack, rows: Sequence[Row]) -> str:
    """Return the result of an attack in a few words; empty if there is none."""
    said = []
    if any(row.success for row in rows):
        said.append("measured")
    if any(not row.success for row in rows):
        said.append("prevented by the design")
    if attack.missing:
        said.append(f"not implemented: {attack.missing}")
    if attack.outside:
        said.append(f"no guarantee: {attack.outside}")
    return "; ".join(said)


def page(rows: Sequence[Row]) -> str:
    rows = sorted(rows, key=lambda row: (int(row.attack[1:]), row.name, row.test))
    by_attack = {name: [row for row in rows if row.attack == name] for name in ATTACKS}
    lines = [HEAD, "| id | attack | result |", "|---|---|---|"]
    for name, attack in ATTACKS.items():
        lines.append(f"| {name} | {attack.what} | {standing(attack, by_attack[name])} |")
    lines += [UNDER_EACH, *_under_each(rows), "", "## Measured independently of the rule", ""]
    lines += [
        "| id | attack | attacker knows | success | bound | beside | bound from | test |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.success and not row.rule:
            cells = (row.attack, row.name, row.knows, row.success, row.bound, row.beside, row.source, f"`{row.test}`")
            lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "## Prevented by the design", "", "| id | what the design ensures | test |", "|---|---|---|"]
    lines += [f"| {row.attack} | {row.name} | `{row.test}` |" for row in rows if not row.success]
    return "\n".join(lines) + "\n" + AGREEMENT


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
    options = ["-q", "-n", "auto"]
    command = [sys.executable, "-m", "pytest", *options, *files_of_attacks()]
    code = subprocess.run(command, cwd=ROOT, env=os.environ | {WRITING: "anew"}, check=False).returncode
    if code:
        print("some tests failed: the page is not changed", file=sys.stderr)
        return code
    rows = [Row(**json.loads(path.read_text(encoding="utf-8"))) for path in sorted(ROWS.glob("R*.json"))]
    PAGE.write_text(page(rows), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(rows)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
