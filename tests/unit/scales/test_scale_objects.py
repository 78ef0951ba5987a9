"""The object of each scale: which scalars are published, and what is wrong with a value."""

from __future__ import annotations

import re
from math import inf

import pytest
from shoal.policy import Attribute, Scale, TimeStep
from shoal.scales import remedies, scale_of
from support.scales import AREAS, attribute

pytestmark = pytest.mark.unit

AGE = attribute("age", Scale.NUMERIC, bounds=(0.0, 9.0), limits=(0.0, 9.0), clip=False, integer=True)
GRADE = attribute("grade", Scale.ORDINAL, order=("low", "a.b", 4))
SEX = attribute("sex", Scale.NOMINAL)
AREA = attribute("area", Scale.NOMINAL, taxonomy=AREAS, publish="ancestor", unknown="quarantine")
DAY = attribute("day", Scale.TIME)


@pytest.mark.parametrize(
    ("one", "value", "reason"),
    [
        (AGE, 3.0, None),
        (AGE, inf, "not a finite number"),
        (AGE, 3.5, "not a whole number"),
        (AGE, 9.5, "not a whole number"),
        (AGE, 10.0, "outside its bounds"),
        (attribute("age", Scale.NUMERIC, limits=(0.0, 9.0)), 10.0, None),
        (GRADE, inf, "not in its order"),
        (GRADE, 2.0, None),
        (SEX, inf, "not a text, truth value or whole number"),
        (AREA, inf, "not in the taxonomy"),
        (attribute("area", Scale.NOMINAL, taxonomy=AREAS), inf, "not a text, truth value or whole number"),
        (DAY, inf, "not a time in ISO 8601"),
        (attribute("day", Scale.TIME, limits=(0.0, 5.0), clip=False), 6.0, "outside its bounds"),
        *(
            (attribute("day", Scale.TIME, unit=unit), inf, f"not a number of {name} since 1970")
            for unit, name in (("s", "seconds"), ("ms", "milliseconds"), ("us", "microseconds"), ("days", "days"))
        ),
    ],
)
def test_what_is_wrong_with_a_value_and_its_remedy(one: Attribute, value: float, reason: str | None) -> None:
    fault = scale_of(one).explain(value)
    assert (fault and fault.reason) == reason
    if fault is not None:
        assert remedies()[fault.reason] == fault.remedy
        assert fault.remedy


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
