"""The page of the papers is what the code computes: some rows in every run, all of it nightly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from papers import __main__ as command
from papers import approximate, costs, embedded, reference, survey
from papers.common import PRINTED, clustered_draw, grid, group_sizes
from papers.pictures import genetic_figure, survey_figure

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


def test_a_category_is_predicted_by_the_one_at_the_least_distance() -> None:
    levels = [np.array([0, 1, 2, 3, 3]), np.array([0, 0, 1, 1, 1])]  # four leaves under two nodes
    codes, apart = embedded.category_distances(levels)
    assert apart.tolist() == [[0.0, 0.5, 1.0, 1.0], [0.5, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.5], [1.0, 1.0, 0.5, 0.0]]
    one, two = np.zeros(5, np.int32), np.array([0, 0, 0, 1, 1], np.int32)
    assert embedded.predicted_loss(codes, apart, one) == (1 + 1 + 0.5) / 5
    assert embedded.predicted_loss(codes, apart, two) == (0.5 + 1) / 5
    assert embedded.predicted_loss(*embedded.category_distances(levels[:1]), two) == 2 / 5


def test_pictures_show_the_printed_and_our_numbers_of_the_tables_on_the_page(page: list[str]) -> None:
    census = {curve.label: curve for curve in survey_figure(page).panels[0].curves}
    assert list(census["V-MDAV"].x) == [3, 4, 5, 10]
    assert list(census["V-MDAV"].y) == pytest.approx(
        [798.49 / 799.18, 1055.53 / 1052.26, 1261.37 / 1276.02, 1978.22 / 1987.49]
    )
    assert census["printed: V-MDAV"].kind == PRINTED
    assert census["printed: V-MDAV"].y[3] == pytest.approx(1974.75 / 1987.49)
    drawn = {panel.title: panel for panel in genetic_figure(page).panels}["scattered"]
    curves = {curve.label: curve for curve in drawn.curves}
    assert list(curves["printed: one step"].x) == [12, 18, 27]
    assert list(curves["printed: one step"].y) == [5.11, 4.91, 4.71]
    assert (curves["MDAV"].y[0], curves["MDAV"].high[0]) == (4.46, 4.85)


def test_every_figure_of_the_page_is_a_file_and_every_file_is_on_it(page: list[str]) -> None:
    shown = {line.split("figures/")[1].rstrip(")") for line in page if line.startswith("![")}
    assert shown == {path.name for path in (PAGE.parent / "figures").glob("papers-*.svg")}


def test_groups_of_the_clustered_draws_have_three_to_five_records() -> None:
    for seed in range(20):
        sizes = group_sizes(1_000, np.random.default_rng(seed))
        assert (sizes.min(), sizes.max(), sizes.sum()) == (3, 5, 1_000)
    draw = clustered_draw(1_000)
    sizes = group_sizes(1_000, np.random.default_rng(1))
    spans = [np.ptp(group, axis=0) for group in np.split(draw, np.cumsum(sizes)[:-1])]
    assert np.max(spans) * 5_774 < 400 * 1.05  # a deviation is the side over the root of 12, nearly


def test_operations_are_counted_as_the_survey_counts_them() -> None:
    assert costs.md_operations(12, 3) == (66 + 4 * 12) + (15 + 4 * 6)  # 12 records are left, then 6
    assert costs.mdav_operations(12, 3) == (2 + 4) * 12 + (2 + 4) * 6
    line = np.array([0.0, 1.0, 2.0, 50.0, 51.0, 52.0])[:, None]  # each cluster of 3 tries one more, which is too far
    assert costs.vmdav_operations(line, 3) == 6 * 3 + 2 * 3 + 3 * 3


def test_what_the_reference_of_steered_merges_or_takes_from_each_bucket() -> None:
    known, confidential = np.arange(12.0)[:, None], np.arange(12.0)
    labels = reference.merged_until_close(known, confidential, 2, 0.3)
    assert reference.distances(confidential, labels).max() <= 0.3
    buckets = reference.buckets_of(confidential, 0.2)
    labels = reference.nearest_of_each_bucket(known, buckets)
    assert [sorted(labels[bucket].tolist()) for bucket in buckets] == [[0, 1, 2, 3]] * 3


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
