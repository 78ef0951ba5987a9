"""The object of each scale: which scalars are published, and what is wrong with a value."""

from __future__ import annotations

import re

import pytest
from shoal.policy import Attribute, Scale, TimeStep
from shoal.scales import scale_of
from support.scales import AREAS, attribute

pytestmark = pytest.mark.unit

AGE = attribute("age", Scale.NUMERIC, bounds=(0.0, 9.0), limits=(0.0, 9.0), clip=False, integer=True)
GRADE = attribute("grade", Scale.ORDINAL, order=("low", "a.b", 4))
SEX = attribute("sex", Scale.NOMINAL)
AREA = attribute("area", Scale.NOMINAL, taxonomy=AREAS, publish="ancestor", unknown="quarantine")
DAY = attribute("day", Scale.TIME)


@pytest.mark.parametrize(
    ("one", "scalars", "others"),
    [
        (AGE, ["3", "-1.5", "1e9"], ["null", '"3"', "03", ""]),
        (GRADE, ['"low"', '"a.b"', "4"], ['"axb"', '"4"', "null"]),
        (SEX, ['"F"', "true", "250", r'"\u001f"', r'"\""'], ["null", "1.5", '"a"b"', '"\n"']),
        (AREA, ['"East"', '""'], ["true", "250"]),
        (DAY, ['"2024-02-01"'], ['"2024-02-01T00:00:00Z"', "1706745600"]),
        (attribute("at", Scale.TIME, time_step=TimeStep(15, "min")), ['"2024-02-01T00:15:00Z"'], ['"2024-02-01"']),
        (attribute("at", Scale.TIME, unit="s"), ["1706745600", "-1"], ["1.5", '"1"']),
    ],
)
def test_which_scalars_a_cluster_may_publish(one: Attribute, scalars: list[str], others: list[str]) -> None:
    pattern = re.compile(scale_of(one).pattern)
    assert [text for text in [*scalars, *others] if pattern.fullmatch(text)] == scalars
