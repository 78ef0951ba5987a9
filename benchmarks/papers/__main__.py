"""Compute what the papers show and write docs/reports/papers.md; with names, print those sections only."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

from reference_data import data_folder
from shoal.kernels.jit import use_compiled

from papers import approximate, dependence, genetic, steered, survey
from papers.common import ROOT, Section, progress

__all__ = ["PAPERS", "main", "page_of"]

PAPERS: Mapping[str, Callable[[Path], Section]] = {
    "survey": survey.section,
    "genetic": genetic.section,
    "steered": steered.section,
    "approximate": approximate.section,
    "dependence": dependence.section,
}
WIDTH = 120
HEAD = [
    "# Papers",
    "",
    "Written by `make papers`: the measurements of five papers, in tables and figures, beside what this repository",
    "gives. Numbers of the papers are quoted as facts, with their place; `=` marks those that are met to the last",
    "printed digit. What is not met says so, and why as far as it is known. *Ours* alone means that the paper shows a",
    "curve and no number. Left out are pictures without measurements. Where a paper's data are not at hand, its",
    "section says what takes their place.",
    "",
    "Only lines that speak of seconds differ from run to run (`tests/benchmarks/test_papers.py`).",
    "Black crosses in figures are numbers that a paper prints; bars are the range of several draws.",
    "",
]


def page_of(section: Section) -> list[str]:
    """Return the lines of one section, prose wrapped."""
    pictures = [
        line
        for figure in section.figures
        for line in (f"![{figure.about}](figures/papers-{figure.name}.svg)", "", f"*{figure.about}*", "")
    ]
    body = wrapped([f"{section.source}.", "", *section.lines])
    return [f"## {section.title}", "", *body, *pictures, *section.timed]


def wrapped(lines: list[str]) -> list[str]:
    """Return the lines with prose and items filled anew; tables and empty lines are left."""
    made: list[str] = []
    for number, run in groupby(numbered(lines), key=lambda pair: pair[0]):
        text = [line for _, line in run]
        if number < 0:
            made += text
        else:
            indent = "  " if text[0].startswith("- ") else ""
            made += textwrap.wrap(
                " ".join(line.strip() for line in text), WIDTH, subsequent_indent=indent, break_long_words=False
            )
    return made


def numbered(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield each line with the number of its paragraph; -1 if it is to be left."""
    paragraph = 0
    for line in lines:
        if not line or line.startswith("|"):
            paragraph += 1
            yield -1, line
        else:
            paragraph += line.startswith("- ")
            yield paragraph, line


def main(names: list[str]) -> int:
    """Write the page, or print some of its sections."""
    unknown = [name for name in names if name not in PAPERS]
    if unknown:
        raise SystemExit(f"papers: no {', '.join(unknown)}; there is {', '.join(PAPERS)}")
    use_compiled()  # hundreds of small tables, each of which would be interpreted
    folder, began = data_folder(), time.perf_counter()
    sections = {name: PAPERS[name](folder) for name in names or PAPERS}
    lines = [line for section in sections.values() for line in page_of(section)]
    if names:
        print("\n".join(lines))
        return 0
    from papers.figures import draw  # noqa: PLC0415 - printing needs no figures

    for section in sections.values():
        for figure in section.figures:
            draw(figure, ROOT / "docs" / "reports" / "figures")
    (ROOT / "docs" / "reports" / "papers.md").write_text("\n".join([*HEAD, *lines]).rstrip() + "\n", encoding="utf-8")
    progress(f"docs/reports/papers.md written after {time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
