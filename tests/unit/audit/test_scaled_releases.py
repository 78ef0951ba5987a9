"""The judge on a release written by hand that has an attribute of every scale."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.scaled_release import FORMS, scaled

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("form", FORMS)
def test_a_sound_release_holds(tmp_path: Path, form: str) -> None:
    found = scaled(form).judged(tmp_path)
    assert found.code == 0, found.text


@pytest.mark.parametrize("form", ["jsonl", "csv", "nested"])
def test_a_sound_release_holds_without_evidence(tmp_path: Path, form: str) -> None:
    release = scaled(form)
    release.has_evidence = False
    found = release.judged(tmp_path)
    assert found.code == 0, found.text


TRUE_LOSSES = {
    "stage": 7 / 36,
    "sex": 4 / 12,
    "code": 6 / 12,
    "job": 4 / 12,
    "mass": 16 / (40_435 - 531**2 / 7),
}


def test_a_summary_with_the_loss_of_each_attribute_holds(tmp_path: Path) -> None:
    release = scaled()
    counts = {"records_in": 12, "released": 12, "suppressed": {}, "quarantined": {}, "held": 0, "clusters": 3}
    release.summary = counts | {"loss": TRUE_LOSSES | {"born": None}}
    found = release.judged(tmp_path)
    assert found.code == 0, found.text


@pytest.mark.parametrize("name", TRUE_LOSSES)
def test_a_summary_with_another_loss_is_broken(tmp_path: Path, name: str) -> None:
    release = scaled()
    release.summary = {"released": 12, "loss": {name: TRUE_LOSSES[name] * 1.01}}
    assert release.judged(tmp_path).checks == ("accounts",)


@pytest.mark.parametrize(("dropped", "code"), [({"deletes": 1, "tombstones": 0}, 0), ({"deletes": 2}, 1)])
def test_a_deleted_row_is_no_record(tmp_path: Path, dropped: dict[str, int], code: int) -> None:
    release = scaled("nested")
    release.clusters = [[0, 1, 2], [4, 5, 6, 7], [8, 9, 10, 11]]
    release.published[0] |= {"stage": "II", "sex": "M", "job": "J18", "mass": 71, "born": "1950-02-01"}
    release.deleted = frozenset({3})
    release.summary = {
        "records_in": 11,
        "released": 11,
        "suppressed": {},
        "quarantined": {},
        "held": 0,
        "dropped": dropped,
    }
    found = release.judged(tmp_path)
    assert found.code == code, found.text
