"""Measures of released clusters and of fields that are published unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from oracle.naive_release import POLICY, NaiveRelease, broken, make_records, make_release

pytestmark = pytest.mark.unit


def test_releases_per_subject_and_single_value_clusters_are_measured(tmp_path: Path) -> None:
    naive = make_release(tmp_path)
    for index in naive.clusters[0]:
        naive.records[index]["diagnosis"] = "flu"
    for number, members in enumerate(naive.clusters):
        for place, index in enumerate(members):
            naive.records[index]["patient"] = "frequent" if place == 0 and number < 7 else f"p{index}"
    # A subject that is never released does not count.
    naive.records.insert(0, {**naive.records[0], "patient": "never"})
    naive.clusters = [[index + 1 for index in members] for members in naive.clusters]
    naive.regenerate()
    verdict = naive.verify(partial=True)
    assert verdict.exit_code == 0
    assert verdict.measures["releases_per_subject_max"] == 7
    assert verdict.measures["releases_per_subject_mean"] == pytest.approx(60 / 54)
    assert verdict.measures["single_value_share.diagnosis"] == pytest.approx(1 / 11)


def warned(tmp_path: Path, ward: list[Any], *, n: int = 60) -> list[str]:
    records = [{**record, "ward": value} for record, value in zip(make_records(n), ward, strict=True)]
    naive = NaiveRelease(tmp_path, records, make_release(tmp_path, n).clusters)
    verdict = naive.verify()
    assert verdict.exit_code == 0
    return [warning for warning in verdict.warnings if warning.startswith("ward")]


def test_a_field_with_unique_values_is_a_warning(tmp_path: Path) -> None:
    (warning,) = warned(tmp_path, [7 * number % 60 for number in range(60)])
    assert "100% of its values are unique" in warning


def test_a_field_that_follows_the_order_of_arrival_is_a_warning(tmp_path: Path) -> None:
    (warning,) = warned(tmp_path, [number // 4 for number in range(60)])
    assert "rank correlation 1.00" in warning
    (warning,) = warned(tmp_path, [f"t{90 - number // 4}" for number in range(60)])
    assert "rank correlation" in warning
    assert warned(tmp_path, [str(8 + number // 20) for number in range(60)])


def test_common_values_in_no_order_are_no_warning(tmp_path: Path) -> None:
    assert warned(tmp_path, [number % 3 for number in range(60)]) == []
    assert warned(tmp_path, [None] * 60) == []
    assert warned(tmp_path, ["x"] * 30 + [None] * 30) == []


@pytest.mark.parametrize(("unique", "is_warned"), [(2, False), (4, True)])
def test_a_unique_share_above_five_percent_is_a_warning(tmp_path: Path, unique: int, is_warned: bool) -> None:  # noqa: FBT001
    common = [f"c{number % 3}" for number in range(60 - unique)]
    values = [*common[:20], *(f"u{number}" for number in range(unique)), *common[20:]]
    assert any("are unique" in text for text in warned(tmp_path, values)) is is_warned


@pytest.mark.parametrize("csv", [False, True])
def test_nulls_do_not_count_for_the_unique_share(tmp_path: Path, csv: bool) -> None:  # noqa: FBT001
    naive = make_release(tmp_path, 60, csv=csv)
    for number, record in enumerate(naive.records):
        record["ward"] = f"w{number * 7 % 60}" if number % 20 == 7 else None
    naive.regenerate()
    assert naive.verify().measures["unique_share.ward"] == 1
    assert any(text.startswith("ward") and "unique" in text for text in naive.verify().warnings)
    assert broken(naive.verify(strict=True)) == {"unchanged"}


def test_fewer_than_thirty_records_are_no_warning(tmp_path: Path) -> None:
    assert warned(tmp_path, list(range(20)), n=20) == []


def test_unchanged_fields_are_measured_with_and_without_evidence(tmp_path: Path) -> None:
    naive = make_release(tmp_path, 60)
    for evidence in (True, False):
        measures = naive.verify(evidence=evidence).measures
        assert measures["unique_share.diagnosis"] == 1
        assert 0 <= (measures["order_correlation.ward"] or 0) <= 1
    assert naive.verify().measures["largest_share"] is not None
    assert make_release(tmp_path, 20).verify().measures["unique_share.diagnosis"] is None


@pytest.mark.parametrize("acknowledged", [False, True])
def test_an_identifying_field_is_a_warning_and_with_strict_an_error_unless_acknowledged(
    acknowledged: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    meant = "type: string, publish_unchanged: true" if acknowledged else "type: string"
    naive = make_release(tmp_path, 60)
    naive.policy = POLICY.replace("{role: confidential, type: string", f"{{role: confidential, {meant}")
    lenient, strict = naive.verify(), naive.verify(strict=True)
    warned = [text for text in lenient.warnings if text.startswith("diagnosis")]
    assert any("unique" in text for text in warned)
    assert all(("this is intended" in text) != acknowledged for text in warned)
    assert lenient.exit_code == 0
    assert strict.exit_code == (0 if acknowledged else 1)
    assert broken(strict) == (set() if acknowledged else {"unchanged"})
    assert json.dumps(strict.as_dict())
