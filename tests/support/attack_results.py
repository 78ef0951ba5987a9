"""Records how far each attack of a test came, and its bound.

Three things happen to a row: the bound is asserted; the figure is compared with the one printed in
docs/reports/privacy.md, if it stands there; and the row is written into ``build/privacy``, from where
``make privacy-table`` writes the page.
A test calls `measured` when it has a figure, and `impossible` when it shows that the design prevents the attack.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from shoal.arrays import Float64Vector
from support.attacks import ATTACKS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reports" / "privacy.md"
ROWS = ROOT / "build" / "privacy"
RULES = ("nearest", "awo", "block")
"""What ``auto`` can stand for, in the order of the page's columns."""
WRITING = "SHOAL_PRIVACY_TABLE"
"""Set while the page is written: the figures printed there are not binding then."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one test has found about one attack, as printed; success and bound are empty if it is impossible."""

    attack: str
    name: str
    knows: str
    success: str
    bound: str
    beside: str
    source: str
    test: str
    rule: str = ""


_collected: list[Row] = []
_not_returned: list[Row] = []
"""Those of them that no report carries yet."""


def measured(
    attack: str,
    name: str,
    *,
    knows: str,
    success: float | Sequence[float] | Float64Vector,
    bound: float | None = None,
    source: str,
    error: float = 0.0,
    beside: str = "",
    rule: str = "",
) -> None:
    """Enter the success of an attacker (a share, or of each target) and assert: success <= bound + 3 ``error``."""
    if not isinstance(success, float | int):
        error = standard_error(success)
        success = float(np.mean(success))
    shown = f"{success:.3f}" + (f" ± {error:.3f}" if error else "")
    limit = "none" if bound is None else f"{bound:.3f}" + (" + 3 s.e." if error else "")
    row = _enter(Row(attack, name, knows, shown, limit, beside, source, _test(), rule))
    assert bound is None or success <= bound + 3 * error, f"{attack} {name}: {shown} is above {limit}"
    if WRITING in os.environ:
        return
    before = [one for one in printed_rows() if _key(one) == _key(row)]
    for one in before:
        now, was = shown.split(maxsplit=1)[0], one.success.split()[0]
        assert now == was, f"{attack} {name}: {shown} measured, {was} printed; if that is intended: make privacy-table"


def standard_error(outcomes: Sequence[float] | Float64Vector) -> float:
    """Of their mean; never below that of a coin seen as often that always fell alike."""
    count = len(outcomes)
    return float(max(np.std(outcomes), 1 / count) / np.sqrt(count))


def impossible(attack: str, how: str) -> None:
    """Enter why the attack is impossible, in one line; called at the end of a test that has shown it."""
    _enter(Row(attack, how, "", "", "", "", "", _test()))


def entered() -> list[Row]:
    """Return the rows that this process has entered since the last call."""
    found = list(_not_returned)
    _not_returned.clear()
    return found


def contradicting(rows: Sequence[Row]) -> list[Row]:
    """Return the rows whose figures differ from those of another row of the same attack and name."""
    figures: dict[tuple[str, str, str], set[Row]] = {}
    for row in rows:
        if row.success:
            figures.setdefault(_key(row), set()).add(row)
    return [row for found in figures.values() if len(found) > 1 for row in found]


def printed_rows() -> list[Row]:
    """Return the rows of the page; none before it was written."""
    if not PAGE.is_file():
        return []
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("| R") else []
        test = re.fullmatch(r"`(\S+)`", cells[-1]) if cells else None
        if test and len(cells) == 8:
            attack, name, knows, success, bound, beside, source = cells[:7]
            found.append(Row(attack, name, knows, success, bound, beside, source, test[1]))
        elif test and len(cells) == 9:
            attack, name, knows, *under, bound, source = cells[:8]
            for rule, cell in zip(RULES, under, strict=True):
                success, _, beside = cell.partition("; ")
                if success:
                    found.append(Row(attack, name, knows, success, bound, beside, source, test[1], rule))
        elif test and len(cells) == 3:
            found.append(Row(cells[0], cells[1], "", "", "", "", "", test[1]))
    return found


def _enter(row: Row) -> Row:
    assert row.attack in ATTACKS, f"{row.attack} is not an attack of the list"
    assert row not in contradicting([*_collected, row]), f"{row.attack} {row.name}: two attacks under one name"
    assert not any("|" in cell or "\n" in cell for cell in asdict(row).values()), "a bar or a line end in a cell"
    print(" · ".join(cell for cell in asdict(row).values() if cell))
    _collected.append(row)
    _not_returned.append(row)
    ROWS.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(f"{row.attack} {row.name} {row.rule} {row.test}".encode()).hexdigest()[:16]
    (ROWS / f"{row.attack}-{key}.json").write_text(json.dumps(asdict(row), ensure_ascii=False), encoding="utf-8")
    return row


def _key(row: Row) -> tuple[str, str, str]:
    return row.attack, row.name, row.rule


def _test() -> str:
    running = os.environ["PYTEST_CURRENT_TEST"].rsplit(" ", 1)[0]
    return running.split("[")[0]
