"""`shoal batch` with l-diversity, value shares and t-closeness: the judge checks every cluster."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from shoal.arrays import Int32Vector
from shoal.audit import Verdict, verify
from shoal.cli import main
from shoal.policy import Policy

pytestmark = pytest.mark.unit

DISEASES = ["flu", "cold", "ulcer", "colitis", None]
LEVELS = ["low", "middle", "high"]
FILES = {
    "illnesses.csv": "leaf,part\nflu,lung\ncold,lung\nulcer,gut\ncolitis,gut\n",
    "illness.csv": "value,share\nflu,0.15\ncold,0.2\nulcer,0.25\ncolitis,0.25\n,0.15\n",
    "level.csv": "value,share\nlow,0.6\nmiddle,0.2\nhigh,0.2\n",
}


def records(count: int = 150) -> list[dict[str, Any]]:
    draw = random.Random(3)
    rows: list[dict[str, Any]] = []
    for _ in range(count):
        age = draw.randrange(100)
        illness = DISEASES[min(int(age / 25 + draw.expovariate(1.5)), 4)]
        level = LEVELS[min(int(draw.expovariate(1.0)), 2)]
        rows.append(
            {"age": age, "illness": illness, "pay": draw.choice([1, 1.0, "1.0", 2, "3", " 4 "]), "level": level}
        )
    return rows


def written(
    folder: Path, privacy: dict[str, Any], rows: list[dict[str, Any]], attributes: dict[str, Any]
) -> tuple[Path, Path]:
    """Write a policy and a table; return their paths."""
    document = {
        "attributes": {"age": {"role": "quasi_identifier"}, **attributes},
        "privacy": {"k": 4, **privacy},
        "undeclared": "drop",
        "subject": "every_record",
    }
    policy, source = folder / "policy.json", folder / "in.jsonl"
    policy.write_text(json.dumps(document))
    for name, text in FILES.items():
        (folder / name).write_text(text)
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return policy, source


def refused(folder: Path, code: int, *table: Any) -> None:
    """Check that `shoal batch` ends with this code and writes nothing."""
    policy, source = written(folder, *table)
    assert main(["batch", str(policy), "-i", str(source), "-o", str(folder / "out.csv")]) == code
    assert not (folder / "out.csv").exists()


def released(folder: Path, privacy: dict[str, Any], attributes: dict[str, Any], *more: str) -> Verdict:
    """Release a table; return the judge's verdict, which holds."""
    policy, source = written(folder, privacy, records(), attributes)
    out, evidence, summary = (folder / name for name in ("out.jsonl", "evidence", "summary"))
    files = ["-i", str(source), "-o", str(out), "--evidence", str(evidence), "--summary", str(summary)]
    assert main(["batch", str(policy), *files, *more]) == 0
    verdict = verify(Policy.load(policy), source, out, evidence, summary, table=True)
    assert verdict.exit_code == 0, verdict.text()
    assert len(evidence.read_text().splitlines()) > 5
    return verdict


ILLNESS: dict[str, Any] = {"role": "confidential", "type": "string"}
LEVEL = ILLNESS | {"scale": "ordinal", "order": LEVELS}


@pytest.mark.parametrize("algorithm", ["auto", "mdav"])
@pytest.mark.parametrize("l", [3, {"entropy": 2.5}, {"recursive": [3, 3]}])
def test_clusters_of_a_table_are_l_diverse(l: Any, algorithm: str, tmp_path: Path) -> None:  # noqa: E741
    verdict = released(tmp_path, {"l": l}, {"illness": ILLNESS}, "--algorithm", algorithm)
    assert verdict["diversity"].status == "holds"
    is_examined = "value_share" in {check.name for check in verdict.checks}
    assert is_examined == (l == 3), "the default beside distinct l"


@pytest.mark.parametrize(
    "attributes",
    [
        {"level": LEVEL},
        {"level": LEVEL | {"reference": "level.csv"}},
        {"illness": ILLNESS | {"scale": "nominal"}},
        {"illness": ILLNESS | {"scale": "nominal", "reference": "illness.csv"}},
        {"illness": ILLNESS | {"scale": "nominal", "taxonomy": "illnesses.csv"}},
        {"illness": ILLNESS | {"scale": "nominal", "taxonomy": "illnesses.csv", "reference": "illness.csv"}},
        {"illness": ILLNESS | {"protect": True}, "level": LEVEL},
    ],
)
def test_clusters_of_a_table_are_t_close(attributes: dict[str, Any], tmp_path: Path) -> None:
    verdict = released(tmp_path, {"t": 0.25}, attributes)
    assert verdict["closeness"].status == "holds"
    summary = json.loads((tmp_path / "summary").read_text())
    assert list(summary["emd_of"]) == [next(iter(attributes))]
    assert verdict["closeness"].worst == pytest.approx(summary["emd"]["max"])


@pytest.mark.parametrize(
    ("privacy", "found", "remedy"),
    [
        ({"l": 3}, "violates privacy.l (level) and privacy.max_value_share (level)", "lower privacy.l, raise"),
        ({"l": {"entropy": 2.5}}, "violates privacy.l (level), so", "lower privacy.l, or add"),
        ({"max_value_share": 0.6}, "violates privacy.max_value_share (level), so", "raise privacy.max_value_share"),
        ({"t": 0.1}, "violates privacy.t (illness), so", "raise privacy.t, or make the reference anew"),
    ],
)
def test_a_table_that_violates_the_policy_as_a_whole_names_the_settings(
    privacy: dict[str, Any], found: str, remedy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"age": n, "illness": DISEASES[n % 3], "level": "high" if n % 3 else "low"} for n in range(30)]
    about: dict[str, Any] = {name: {"role": "confidential", "type": "string"} for name in ("illness", "level")}
    if "t" in privacy:
        about["illness"]["reference"] = "illness.csv"
    refused(tmp_path, 1, privacy, rows, about)
    error = capsys.readouterr().err
    assert found in error
    assert remedy in error


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"scale": "numeric"}, "not a number, as its scale needs"),
        ({"scale": "ordinal", "order": LEVELS}, "not in its order"),
    ],
)
def test_a_value_that_cannot_be_compared_is_refused(
    about: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = records(30)
    rows[7]["level"] = "elsewhere"
    refused(tmp_path, 2, {"t": 0.3}, rows, {"level": {"role": "confidential", **about}})
    text = capsys.readouterr().err
    assert words in text
    assert "field level" in text
    assert "elsewhere" not in text


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ({"t": 0.1}, "farther from the reference than privacy.t"),
        ({"l": 3, "max_value_share": 1}, "violates privacy.l"),
        ({"l": {"entropy": 3}}, "violates privacy.l"),
        ({"l": {"recursive": [1, 3]}}, "violates privacy.l"),
        ({"max_value_share": 0.4}, "exceeds privacy.max_value_share"),
    ],
)
def test_a_partition_that_violates_a_constraint_is_not_written(
    privacy: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    from shoal.tables import ClusterConstraints, refined

    def without_constraints(*given: Any, **more: Any) -> Int32Vector:
        found: Any = refined(*given, **more | {"constraints": ClusterConstraints()})
        return found  # type: ignore[no-any-return]

    monkeypatch.setattr("shoal.tables.table.refined", without_constraints)
    refused(tmp_path, 1, privacy, records(), {"illness": ILLNESS})
    assert words in capsys.readouterr().err
