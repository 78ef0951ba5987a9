"""The page of the papers is what the code computes: some rows in every run, all of it nightly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from papers import __main__ as command
from papers import approximate, embedded, genetic, reference, steered, survey
from papers.common import grid, standardised, zscores
from reference_data import data_folder
from shoal.tables import refined

pytestmark = pytest.mark.golden

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reports" / "papers.md"


@pytest.fixture(scope="module")
def page() -> list[str]:
    return PAGE.read_text(encoding="utf-8").splitlines()


def test_table_one_of_the_survey(data_dir: Path, page: list[str]) -> None:
    assert set(grid((), survey.rows(data_dir, "census"))[2:]) <= set(page)


def test_macrogroups_of_the_genetic_table(data_dir: Path, page: list[str]) -> None:
    one, two = genetic.macrogroups(standardised(data_dir, "census"), 18)
    assert one == genetic.PUBLISHED["census", 18].groups_one
    assert any(line.startswith("| census | 18 |") and f"| 61 / {two} |" in line for line in page)


def test_the_approximation_on_adult(data_dir: Path, page: list[str]) -> None:
    codes = approximate.adult_codes(data_dir)
    assert codes.shape == (32561, 9)
    assert (codes.max(axis=0) + 1).tolist() == [73, 2, 16, 7, 5, 9, 42, 15, 2]
    found = approximate.run(zscores(codes[:, :5].astype(float)), 20, "Adult")
    row = f"| first 5 attributes | {found.keys} | {found.losses[0]:.2f} | {found.losses[1]:.2f} |"
    assert row == "| first 5 attributes | 2 | 1.40 | 56.33 |"
    assert row in page


@pytest.mark.parametrize(
    ("by_region", "coordinates", "shares", "row"),
    [
        (False, 56, (0.01301, 0.03218, 0.06599), "| state flat | 56 | 1.301 |"),
        (True, 60, (0.01241, 0.02745, 0.05440), "| state by census region | 60 | 1.241 |"),
    ],
)
def test_states_as_categories(
    data_dir: Path, page: list[str], *, by_region: bool, coordinates: int, shares: tuple[float, ...], row: str
) -> None:
    """Ours, of an independent reproduction."""
    table = embedded.eia_points(data_dir, by_region=by_region)
    assert table.points.shape == (4092, coordinates)
    assert table.total == pytest.approx(4092 * 6)
    found = [refined(table.points, k, "mdav").loss / table.total for k in (3, 5, 10)]
    assert found == pytest.approx(shares, abs=5e-6)
    assert any(line.startswith(row) for line in page)


def test_the_stream_of_the_third_figure(data_dir: Path, page: list[str]) -> None:
    result = steered.stream_result(steered.stream_of(data_dir), 0.02)
    assert any(
        f"| {result.mse:.5f} |" in line and f"| 12 / 0.7 | {result.most} / {result.average:.2f} |" in line
        for line in page
    )


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


def test_what_cannot_be_computed_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no steering; there is survey, genetic"):
        command.main(["steering"])
    (tmp_path / "adult.csv").touch()
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match=r"SHOAL_DATA: no census\.csv, eia\.csv, .*tarragona\.csv in .*; unset"):
        data_folder()


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
