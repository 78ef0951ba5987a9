"""docs/papers.md says what the code says: some rows every day, all of it at night."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from papers import __main__ as command
from papers import approximate, dependence, genetic, reference, steered, survey
from papers.common import data_folder, grid, standardised

pytestmark = pytest.mark.golden

PAGE = Path(__file__).resolve().parents[2] / "docs" / "papers.md"


@pytest.fixture(scope="module")
def page() -> list[str]:
    return PAGE.read_text(encoding="utf-8").splitlines()


def test_table_one_of_the_survey(data_dir: Path, page: list[str]) -> None:
    assert set(grid((), survey.rows(data_dir, "census"))[2:]) <= set(page)


def test_macrogroups_of_the_genetic_table(data_dir: Path, page: list[str]) -> None:
    one, two = genetic.macrogroups(standardised(data_dir, "census"), 18)
    assert one == genetic.PUBLISHED["census", 18].groups_one
    assert any(line.startswith("| census | 18 |") and f"| 61 / {two} |" in line for line in page)


def test_the_weight_that_steering_needs(data_dir: Path, page: list[str]) -> None:
    risks = steered.risks_of(*steered.table_of(data_dir, "PCD"), 0.05)
    assert steered.threshold(risks, 0.05) == 99  # printed
    assert any(line.startswith("| PCD, t = 0.05 | 10 | 99 = |") for line in page)


def test_the_stream_of_the_third_figure(data_dir: Path, page: list[str]) -> None:
    flow = steered.flow_at(steered.stream_of(data_dir), 0.02)
    assert any(
        f"| {flow.mse:.5f} |" in line and f"| 12 / 0.7 | {flow.most} / {flow.average:.2f} |" in line for line in page
    )


def test_the_running_example(page: list[str]) -> None:
    rows = [line for line in approximate.example_lines() if line.startswith("|")]
    assert set(rows) <= set(page)
    assert (
        sum(line.count("=") for line in rows if line.startswith("| A")) == 14
    )  # of 15; the other is off in its last digit


def test_one_weight_of_dependence(data_dir: Path, page: list[str]) -> None:
    values = standardised(data_dir, "census")
    known, confidential = np.ascontiguousarray(values[:, :6]), np.ascontiguousarray(values[:, 6:])
    found = dependence.point(known, confidential, 10, 0.5)
    row = next(line for line in page if line.startswith("| census | 10 | 0.0999"))
    assert f"| {found.known:.4f} / {found.confidential:.4f} |" in row


def test_the_distance_of_clusters_to_the_table_is_the_one_of_its_definition() -> None:
    confidential = np.array([3.0, 1.0, 2.0, 2.0])
    labels = np.array([0, 0, 1, 1], np.int32)
    assert reference.distances(confidential, labels).tolist() == pytest.approx([0.25, 0.25])
    assert reference.distances(np.ones(4), labels).tolist() == [0.0, 0.0]


def test_linkage_shares_ties() -> None:
    line = np.arange(6.0)[:, None]
    assert reference.linked(line, line) == 1.0
    assert reference.linked(np.repeat(line, 2, axis=0), np.repeat(line, 2, axis=0)) == 0.5


def test_without_data_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match=r"census\.csv, eia\.csv, tarragona\.csv .* set SHOAL_DATA"):
        data_folder()


def test_an_unknown_paper_is_refused() -> None:
    with pytest.raises(SystemExit, match="no steering; there is survey, genetic"):
        command.main(["steering"])


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(command.PAPERS))
def test_every_line_without_seconds_is_on_the_page(name: str, data_dir: Path, page: list[str]) -> None:
    section = command.PAPERS[name](data_dir)
    lines = command.page_of(section._replace(timed=[]))
    start = page.index(lines[0])
    assert page[start : start + len(lines)] == lines[: len(page) - start]
    for figure in section.figures:
        assert (PAGE.parent / "figures" / f"papers-{figure.name}.svg").is_file()
