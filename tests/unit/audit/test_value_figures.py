"""What a summary states of confidential values is compared with the clusters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shoal.audit import Verdict, verify
from support.judged_runs import write_lines
from support.making import policy_of, quasi
from support.value_limits import REFERENCES

pytestmark = pytest.mark.unit

ILLS = ("flu", "cold", "gout", "flu", " flu", "cold", "flu", "gout")
SUMMARY = {"records_in": 8, "released": 8, "suppressed": {}, "quarantined": {}, "held": 0, "clusters": 2}


def verdict(
    folder: Path,
    stated: dict[str, Any],
    privacy: dict[str, Any],
    values: tuple[Any, ...] = ILLS,
    *,
    is_table: bool = False,
    steering: dict[str, Any] | None = None,
    **attribute: Any,
) -> Verdict:
    """Judge two clusters of four records each."""
    attributes = {"x": quasi(0, 9, resolution=1), "ill": {"role": "confidential", **attribute}}
    stream = {} if is_table else {"stream": {"delta": 7}}
    policy = policy_of(attributes, privacy={"k": 4, **privacy}, steering=steering or {}, **stream)
    rows = [{"x": 3 if n < 4 else 6, "ill": value} for n, value in enumerate(values)]
    released = [json.dumps(row, separators=(",", ":")) for row in rows]
    files: dict[str, list[Any]] = {
        "in": [row | {"x": row["x"] + (-1) ** n} for n, row in enumerate(rows)],
        "out": sorted(released) if is_table else [*sorted(released[:4]), *sorted(released[4:])],
        "evidence": [{"partition": 0, "cluster": n, "offsets": [*range(4 * n, 4 * n + 4)]} for n in (0, 1)],
    }
    original, made, evidence = (write_lines(folder / f"{name}.jsonl", lines) for name, lines in files.items())
    return verify(policy, original, made, evidence, {**SUMMARY, **stated})


L = {"l": 2, "max_value_share": 0.6}


@pytest.mark.parametrize(
    ("stated", "places"),
    [
        ({"emd": {"mean": 0.0, "max": 0.0}, "emd_of": {"ill": {"mean": 0.0, "max": 0.0}}}, ()),
        ({"emd": {"mean": 0.1, "max": 0.0}}, ("emd.mean",)),
        ({"emd_of": {"ill": {"mean": 0.0, "max": 0.3}}}, ("emd_of.ill.max",)),
    ],
)
def test_the_distances_of_a_table_are_recomputed(
    tmp_path: Path, stated: dict[str, Any], places: tuple[str, ...]
) -> None:
    values = ("flu", "flu", "cold", "cold", "flu ", "flu ", "cold", "cold")
    # Both clusters have half of each value, but not half of each spelling.
    found = verdict(tmp_path, stated, {"t": 0.5}, values, is_table=True, type="string")
    assert found["accounts"].places == places


@pytest.mark.parametrize(
    ("d_y", "d_x", "places"), [(0.1818, 0.3077, ()), (0.1, 0.3077, ("d_y",)), (0.1818, 0.2, ("d_x",))]
)
def test_d_x_and_d_y_are_recomputed(tmp_path: Path, d_y: float, d_x: float, places: tuple[str, ...]) -> None:
    # Within clusters the sum of squares is 2 * 2, and in total 22; of x they are 8 and 26.
    values = (0, 1, 1, 2, 3, 4, 4, 5)
    figures = {"d_x": d_x, "d_y": d_y, "loss": {"x": 0.3077}}
    found = verdict(tmp_path, figures, {}, values, steering={"dependence": 0.5}, type="integer", bounds=[0, 9])
    assert found["accounts"].places == places, found.text()


def test_an_edited_reference_is_noticed_if_the_run_names_its_policy(tmp_path: Path) -> None:
    question = "whether references and taxonomies of confidential attributes are those of the run"
    reference: dict[str, Any] = {"reference": str(REFERENCES / "ills.csv")}
    found = verdict(tmp_path, {}, {"t": 0.45}, **reference)
    assert sum(question in text for text in found.not_examined) == 1
    assert not any(question in text for text in verdict(tmp_path, {}, L).not_examined)
    edited = verdict(tmp_path, {"policy": "0123456789abcdef" * 4}, {"t": 0.45}, **reference)
    assert edited["policy"].status == "broken"
    assert not any(question in text for text in edited.not_examined)
