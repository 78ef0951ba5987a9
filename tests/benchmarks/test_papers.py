"""The page of the papers is what the code computes: some rows in every run, all of it nightly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from papers import __main__ as command
from papers import approximate, reference, survey
from papers.common import grid

pytestmark = pytest.mark.golden

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reports" / "papers.md"


@pytest.fixture(scope="module")
def page() -> list[str]:
    return PAGE.read_text(encoding="utf-8").splitlines()


def test_table_one_of_the_survey(data_dir: Path, page: list[str]) -> None:
    assert set(grid((), survey.rows(data_dir, "census"))[2:]) <= set(page)


def test_the_running_example(page: list[str]) -> None:
    rows = [line for line in approximate.example_lines() if line.startswith("|")]
    assert set(rows) <= set(page)
    assert (
        sum(line.count("=") for line in rows if line.startswith("| A")) == 14
    )  # of 15; the other is off in its last digit


def test_distances_of_clusters_and_shares_of_linked_records_are_those_of_their_definitions() -> None:
    labels = np.array([0, 0, 1, 1], np.int32)
    assert reference.distances(np.array([3.0, 1.0, 2.0, 2.0]), labels).tolist() == pytest.approx([0.25, 0.25])
    assert reference.distances(np.ones(4), labels).tolist() == [0.0, 0.0]
    line = np.arange(6.0)[:, None]
    assert reference.linked(line, line) == 1.0
    assert reference.linked(np.repeat(line, 2, axis=0), np.repeat(line, 2, axis=0)) == 0.5


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", sorted(command.PAPERS))
def test_every_line_without_seconds_is_on_the_page(name: str, data_dir: Path, page: list[str]) -> None:
    section = command.PAPERS[name](data_dir)
    lines = command.page_of(section._replace(timed=[]))
    start = page.index(lines[0])
    while lines and not lines[-1]:  # the page ends without empty lines
        lines.pop()
    assert page[start : start + len(lines)] == lines
    for figure in section.figures:
        assert (PAGE.parent / "figures" / f"papers-{figure.name}.svg").is_file()
