"""The judge on a release written by hand that has an attribute of every scale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shoal.cli import main
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


TRUE_LOSSES = {"stage": 7 / 36, "sex": 4 / 12, "code": 6 / 12, "job": 4 / 12, "mass": 16 / (40_435 - 531**2 / 7)}


def test_a_summary_with_the_loss_of_each_attribute_holds(tmp_path: Path) -> None:
    release = scaled()
    counts = {"records_in": 12, "released": 12, "suppressed": {}, "quarantined": {}, "held": 0, "clusters": 3}
    release.summary = counts | {"loss": TRUE_LOSSES | {"born": None}}
    found = release.judged(tmp_path)
    assert found.code == 0, found.text


LEAVES = "leaf;group;all\nI21;heart;any\nI50;heart;any\nJ18;lung;any\nJ45;lung;any\n"


def _run(folder: Path, *options: str) -> int:
    names = ("original", "released", "evidence")
    files = [part for name in names for part in (f"--{name}", str(folder / f"{name}.jsonl"))]
    return main(["verify", str(folder / "policy.yaml"), *files, *options])


def _write_policy(folder: Path, taxonomy: str) -> None:
    release = scaled()
    for name in ("code", "job"):
        release.document["attributes"][name]["taxonomy"] = taxonomy
    (folder / "policy.yaml").write_text(json.dumps(release.document))
    scaled().judged(folder)


def test_a_taxonomy_is_found_beside_the_policy_or_where_the_user_says(tmp_path: Path) -> None:
    _write_policy(tmp_path, "codes.csv")
    (tmp_path / "codes.csv").write_text(LEAVES)
    assert _run(tmp_path) == 0
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (tmp_path / "codes.csv").rename(moved / "x.csv")
    options = [f"--taxonomy={name}={moved / 'x.csv'}" for name in ("code", "job")]
    assert _run(tmp_path) == 2
    assert _run(tmp_path, options[0]) == 2
    assert _run(tmp_path, *options) == 0


def test_a_taxonomy_of_another_policy_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write_policy(tmp_path, "codes.csv")
    (tmp_path / "codes.csv").write_text(LEAVES.replace("I50;heart", "I50;lung"))
    assert _run(tmp_path) == 1
    assert _run(tmp_path, f"--taxonomy=code={tmp_path / 'codes.csv'}") == 2
    assert "give the files under which the release was made" in capsys.readouterr().err
