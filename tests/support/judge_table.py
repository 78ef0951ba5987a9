"""Write docs/reports/judge.md: what `shoal verify` says of each falsified release of the catalogue."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.falsified_releases import (
    CATALOGUE,
    COMPOSED,
    COMPOSED_OF_SCALES,
    composed_falsifications,
    composed_falsifications_of_scales,
)
from support.named_falsifications import Falsification
from support.release_files import Judgement

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reports" / "judge.md"

HEAD = """# Falsified releases, and what `shoal verify` says

Written by `make judge-table`; do not edit. `make test` judges each release falsified by hand again, and every 30th
composed one, and compares the result with this page; `make nightly` does it with all. A falsified release is a release
of Shoal that was changed afterwards, with evidence, summary and references that claim what suits the change.
`shoal verify` gets the true original and the policy. "Checks" are names in the JSON verdict. *Refused*: the input is
unusable; the message names file and line. *Undecided*: the verdict names the missing file.

Exit code 1 is *broken*, exit code 2 is *unusable or undecided*. Exit code 0 does not occur here.
"""


def row_of(falsification: Falsification, found: Judgement) -> str:
    """Return the row of a falsified release."""
    cells = (falsification.base, falsification.name, str(found.code), ", ".join(found.checks))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page(named: Iterable[str], composed: Iterable[str], of_scales: Iterable[str]) -> str:
    """Return the text of the page for the rows of its tables."""
    header = ["| release | change | exit code | checks |", "|---|---|---|---|"]
    parts = [HEAD, "## Made by hand", "", *header, *named, "", "## Composed at random", ""]
    parts += [
        "What a falsified release gains is computed from the truth and stands in brackets.",
        "",
        *header,
        *composed,
        "",
    ]
    parts += ["## Composed at random, of every scale and of limits of confidential values", "", *header, *of_scales]
    return "\n".join(parts) + "\n"


def main() -> int:
    """Judge every falsified release and write the page."""
    catalogues = CATALOGUE, composed_falsifications(COMPOSED), composed_falsifications_of_scales(COMPOSED_OF_SCALES)
    rows: list[list[str]] = []
    for falsifications in catalogues:
        rows.append([])
        for falsification in falsifications:
            with TemporaryDirectory() as folder:
                rows[-1].append(row_of(falsification, falsification.make().judged(Path(folder))))
    PAGE.write_text(page(*rows), encoding="utf-8")
    print(f"{PAGE.name}: {len(rows[0])} releases falsified by hand, {len(rows[1]) + len(rows[2])} composed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
