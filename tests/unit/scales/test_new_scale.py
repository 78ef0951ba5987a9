"""A scale that Shoal does not have is one class here and one in the judge: school grades, of which the worst counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from shoal.arrays import Float64Vector, Int64Vector
from shoal.audit import scales as judge
from shoal.audit import verify
from shoal.errors import InputError
from shoal.files import Files, run_batch, run_pipe
from shoal.policy import Attribute, Policy, Scale, advise
from shoal.policy import attribute as rules
from shoal.scales import SCALES
from shoal.scales.scale import AttributeScale, Publisher, ScaleColumn, ScaleFault, ScaleReader
from shoal.tables import AlgorithmSpec
from support.making import policy_of

pytestmark = pytest.mark.unit

GRADES = "ABCDEF"
RANKS = {grade: float(rank) for rank, grade in enumerate(GRADES)}
NO_GRADE = ScaleFault("not a grade", "write a letter from A to F")


class NewScale(StrEnum):
    """What the list of scales in the policy would have in addition."""

    GRADE = "grade"


GRADE = cast("Scale", NewScale.GRADE)


class GradeReader(ScaleReader):
    def _parse(self, column: Sequence[Any]) -> ScaleColumn:
        return ScaleColumn(np.array([RANKS.get(str(one), np.inf) for one in column]))


class WorstGrade(Publisher):
    def publish(self, values: Float64Vector, bounds: Int64Vector) -> tuple[list[str], Float64Vector]:
        worst = np.maximum.reduceat(values, bounds[:-1])
        return [f'"{GRADES[int(one)]}"' for one in worst], worst


class GradeRules(rules.ScaleRules):
    keys = ()

    def check(self, *_: object) -> Iterator[tuple[str, str]]:
        yield from ()

    def settings(self, *_: object, **__: object) -> dict[str, Any]:
        return {}


class JudgedGrades(judge.JudgedScale):
    def has_texts(self, _: Attribute) -> bool:
        return True

    def reader(self, *_: object) -> judge.ValueReader:
        return lambda value: RANKS.get(str(value).strip())

    def published(self, attribute: Attribute, release: judge.ReleaseForm) -> judge.PublishedValues:
        return PublishedGrades(attribute, release.form)


class PublishedGrades(judge.PublishedValues):
    def _of_present(self, values: Sequence[float]) -> str:
        return f'"{GRADES[int(max(values))]}"'

    def _allows_present(self, text: str) -> bool:
        return text.strip('"') in RANKS

    def _total_distance(self, values: Sequence[float], text: str) -> float:
        return sum(GRADES.index(text.strip('"')) - value for value in values) / 5


@pytest.fixture(autouse=True)
def _grades(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rules.SCALE_RULES, GRADE, GradeRules())
    monkeypatch.setitem(judge.JUDGED_SCALES, GRADE, JudgedGrades())
    monkeypatch.setitem(SCALES, GRADE, AttributeScale)  # taken back at the end, with what the class registers

    class GradeScale(AttributeScale, scale=GRADE):
        has_categories = True
        faults = (NO_GRADE,)
        pattern = '"[A-F]"'
        off_scale = NO_GRADE
        published_types = {str}  # noqa: RUF012

        def reader(self, missing_values: Iterable[str], *, has_commas: bool = False) -> ScaleReader:
            return GradeReader(self.attribute, missing_values, has_commas=has_commas)

        def publisher(self, *, is_exact: bool, is_table: bool) -> Publisher:  # noqa: ARG002
            return WorstGrade()


def test_every_scale_has_its_class_its_rules_and_its_judge() -> None:
    for table in (SCALES, rules.SCALE_RULES, judge.JUDGED_SCALES):
        assert set(table) == {"numeric", "ordinal", "nominal", "time", "grade"}


def graded_policy() -> Policy:
    """Return a policy with an attribute on the new scale: only the parser of policies does not know its name."""
    attributes: dict[str, dict[str, Any]] = {
        "who": {"role": "identifier", "subject": True},
        "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True},
        "mark": {"role": "quasi_identifier", "bounds": [0, 5]},
        "note": {"role": "confidential", "type": "string"},
    }
    policy = policy_of(attributes, privacy={"k": 3}, stream={"delta": 6})
    changed = [replace(one, scale=GRADE) if one.name == "mark" else one for one in policy.attributes]
    return replace(policy, attributes=tuple(changed))


def test_advice_on_other_scales_is_not_given() -> None:
    assert not any("attributes.mark" in text for text in advise(graded_policy()))


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("command", ["pipe", "batch"])
def test_a_scale_of_one_class_is_read_clustered_published_and_judged(tmp_path: Path, suffix: str, command: str) -> None:
    policy, is_table = graded_policy(), command == "batch"
    rows = [(f"p{i}", 20 + i % 9, GRADES[i * i % 6], f"n{i}") for i in range(40)]
    lines = ["who,age,mark,note", *(",".join(map(str, row)) for row in rows)]
    source, out, evidence = tmp_path / "in.csv", tmp_path / f"out.{suffix}", tmp_path / "evidence.jsonl"
    files = Files(str(source), str(out), evidence=str(evidence))
    source.write_text("\n".join([*lines, "p90,30,G,n90"]) + "\n")
    if is_table:
        with pytest.raises(InputError, match=r"line 42, column 3 \(mark\): not a grade"):
            run_batch(policy, files, AlgorithmSpec())
        source.write_text("\n".join(lines) + "\n")
    report = run_batch(policy, files, AlgorithmSpec()) if is_table else run_pipe(policy, files)
    assert (report.released, report.refusals.total) == (40, int(not is_table))
    verdict = verify(policy, source, out, evidence, table=is_table)
    assert [check.name for check in verdict.checks if check.status == "broken"] == []
    out.write_text(out.read_text().replace("E", "D"))
    assert verify(policy, source, out, evidence, table=is_table).outcome == "broken"
