"""`microaggregate`: each invalid argument is named, and no value is shown; clusters of confidential values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from shoal import microaggregate
from shoal.arrays import Int32Vector
from shoal.errors import ParameterError
from shoal.kernels.jit import compile_if_large
from shoal.protection.diversity import DISTINCT, ENTROPY, EQUAL, RECURSIVE, LDiversity, ValueReference
from shoal.tables import ClusterConstraints, ConfidentialAttribute, microaggregation
from support.diversity_by_definition import alone, entropy_of, is_recursive, value_share

pytestmark = pytest.mark.unit

VALUES = np.arange(12.0).reshape(6, 2)
NAN, INFINITY = float("nan"), float("inf")
BINS = ConfidentialAttribute(np.arange(6), ordered=True)

WHOLE, AT_LEAST_2 = "k: must be a whole number", "k: needs 2 <= k <= number of records"
SEED = "seed: must be a whole number, 0 or more"
NUMBERS = "values: need integers or floats, no text, objects or complex numbers"
FINITE = r"values: need finite numbers of at most 1e\+150; scale them, fill or remove"
SHAPE = r"values: need shape \(n, d\)"


FUNCTION = "budget_used: must be a function"
MAPPING = "parameters: must be a mapping"
NOT_NAMES: tuple[Any, ...] = (None, [], 3, np.array(["md", "mdav"]))
NOT_MAPPINGS: tuple[Any, ...] = (3, "gamma", [("gamma", 1.0)])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        *(({"k": k}, WHOLE) for k in (3.0, "3", True, None, NAN, [3], np.float64(3), Decimal(3), 3j)),
        *(({"k": k}, AT_LEAST_2) for k in (1, 0, -3, 7, 10**30)),
        *(({"seed": seed}, SEED) for seed in (-1, 1.0, "1", True, None, [1], np.int64(-1))),
        *(({"algorithm": name}, "algorithm: must be a name") for name in NOT_NAMES),
        *(({"refine": name}, "refine: unknown, use one of none, descent") for name in (*NOT_NAMES[1:], "best")),
        *(({"parameters": given}, MAPPING) for given in NOT_MAPPINGS),
        ({"budget_used": 3}, FUNCTION),
        ({"constraints": None}, "constraints: must be ClusterConstraints"),
    ],
)
def test_an_argument_of_another_type_or_outside_its_domain_is_named(argument: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=f"^{message}"):
        microaggregate(VALUES, **{"k": 3, **argument})


def test_the_defaults_are_those_of_batch() -> None:
    values = np.random.default_rng(2).random((60, 2))
    assert microaggregate(values, 4).tolist() == microaggregate(values, 4, "auto", "descent").tolist()
    named, refined = (microaggregate(values, 4, "mdav", how).tolist() for how in (None, "descent"))
    assert named == microaggregate(values, 4, "mdav", "none").tolist() != refined


def test_all_faults_are_in_one_message() -> None:
    with pytest.raises(ParameterError, match=r"^k: .*; refine: .*; seed: .*; constraints: max_share "):
        microaggregate(VALUES, 1, refine="best", seed=-1, constraints=ClusterConstraints(max_share=0.0))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([["a", "b"], ["c", "d"]], NUMBERS),
        ([[1, None], [3, 4]], NUMBERS),
        ([[10**400, 1], [1, 2]], NUMBERS),
        (np.array([["2020-01-01"], ["2020-01-02"]], "M8[D]"), NUMBERS),
        ([[NAN, 1], [1, 2]], FINITE),
        ([[1e300, 1], [1, 2]], FINITE),
        ([1.0, 2.0], SHAPE),
        ([[]], SHAPE),
        ([[1.0], [2.0, 3.0]], SHAPE),
        (np.ma.array([[1.0], [2.0]], mask=[[False], [True]]), "values: must not be masked; fill or remove"),
    ],
)
def test_values_that_are_no_table_of_finite_numbers_are_refused(values: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=f"^{message}") as raised:
        microaggregate(values, 2)
    assert "300" not in str(raised.value)


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float16, np.float32, np.longdouble, bool])
def test_every_type_of_number_is_accepted(dtype: Any) -> None:
    k: Any = np.int32(2)
    assert microaggregate(np.array([[0], [1], [0], [1]], dtype), k).tolist() in ([0, 1, 0, 1], [1, 0, 1, 0])


NO_DIVERSITIES: tuple[Any, ...] = (
    3,
    LDiversity(DISTINCT, 1),
    LDiversity(ENTROPY, 1.0),
    LDiversity(RECURSIVE, 2),
    LDiversity(RECURSIVE, 2, INFINITY),
    LDiversity(7, 2),
)
CODES = "confidential needs attributes with integers from 0 as bins and values"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subjects": np.arange(5)}, r"subjects must be an array of integers from 0, shape \(6,\)"),
        *(({"subjects": one}, "subjects must be") for one in (np.arange(6.0), -np.arange(6), [0, 1, 2, 3, 4, 5])),
        ({"buckets": np.arange(7)}, "buckets must be"),
        *(({"max_share": share}, "max_share must be above 0 and at most 1") for share in (NAN, 1.5, True)),
        ({"t": 0.5}, "t needs a confidential attribute"),
        ({"l": LDiversity(DISTINCT, 3)}, "l needs a confidential attribute"),
        ({"max_value_share": 0.5}, "max_value_share needs a confidential attribute"),
        *(({"t": t, "confidential": (BINS,)}, "t must be a number, 0 or more") for t in (NAN, -0.1, "0.5")),
        *(({"l": l, "confidential": (BINS,)}, "l must be LDiversity") for l in NO_DIVERSITIES),  # noqa: E741
        *(
            ({"max_value_share": share, "confidential": (BINS,)}, "max_value_share must be above 0")
            for share in (0.0, 1.5, NAN, True)
        ),
        ({"t": 0.5, "confidential": 3}, "confidential needs attributes"),
        ({"t": 0.5, "confidential": (BINS._replace(bins=np.arange(5)),)}, rf"{CODES}, shape \(6,\)"),
        ({"t": 0.5, "confidential": (BINS._replace(values=np.arange(5)),)}, CODES),
        (
            {"t": 0.5, "confidential": (BINS._replace(reference=ValueReference(EQUAL, np.ones(5))),)},
            f"{CODES}, .*and bins of their reference",
        ),
    ],
)
def test_constraints_of_another_type_or_shape_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=f"constraints: {message}"):
        microaggregate(VALUES, 3, constraints=ClusterConstraints(**given))


DRAW = np.random.default_rng(2)
TABLE = DRAW.random((90, 2))
WORDS = [["flu", "cold", " flu ", None, "ulcer"][min(int(5 * x + y), 4)] for x, y in TABLE.tolist()]
PAYS: list[Any] = [[1, 1.0, "1", 2.5, 4][min(int(5 * y), 4)] for _, y in TABLE.tolist()]


def columns_of(labels: Int32Vector, values: list[Any]) -> list[list[Any]]:
    """The values of each cluster, as they are compared."""
    keys = [value.strip() if isinstance(value, str) else value for value in values]
    return [[keys[i] for i in np.flatnonzero(labels == label)] for label in range(int(labels.max()) + 1)]


@pytest.mark.parametrize(
    ("l", "is_diverse"),
    [
        *(
            (l, lambda column: len(set(column)) >= 3 and value_share(alone(column)) <= 0.5)
            for l in (3, {"distinct": 3})  # noqa: E741 - the letter of the literature
        ),
        ({"entropy": 2.2}, lambda column: entropy_of(alone(column)) >= math.log(2.2) - 1e-9),
        ({"recursive": [2, 3]}, lambda column: is_recursive(alone(column), 2, 3)),
    ],
)
def test_every_cluster_is_l_diverse(l: Any, is_diverse: Callable[[list[Any]], bool]) -> None:  # noqa: E741
    labels = microaggregate(TABLE, 4, "auto", confidential=np.array(WORDS, object), l=l)
    assert labels.max() > 2
    assert all(is_diverse(column) for column in columns_of(labels, WORDS))


def test_spellings_of_a_number_are_one_value_and_several_attributes_keep_the_largest_share() -> None:
    labels = microaggregate(TABLE, 4, confidential=np.array(PAYS, object), l=3, max_value_share=1)
    assert {len(set(map(float, column))) for column in columns_of(labels, PAYS)} == {3}
    both = np.array(list(zip(WORDS, PAYS, strict=True)), object)
    labels = microaggregate(TABLE, 4, confidential=both, max_value_share=0.7)
    for values in (WORDS, list(map(float, PAYS))):
        assert max(value_share(alone(column)) for column in columns_of(labels, values)) <= 0.7 + 1e-9


@pytest.mark.parametrize("reference", [None, {1: 0.5, 2.5: 0.25, 4: 0.25}])
def test_every_cluster_is_t_close(reference: dict[Any, float] | None) -> None:
    labels = microaggregate(TABLE, 4, "auto", confidential=np.array(PAYS, object), t=0.3, reference=reference)
    assert labels.max() > 3
    pays = [float(pay) for pay in PAYS]
    whole = reference or {pay: count / 90 for pay, count in Counter(pays).items()}
    for column in columns_of(labels, pays):
        gaps = [column.count(pay) / len(column) - whole[pay] for pay in sorted(whole)]
        assert sum(abs(sum(gaps[: i + 1])) for i in range(3)) / 2 <= 0.3 + 1e-9


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"l": 3}, "confidential: missing"),
        ({"t": 0.3}, "confidential: missing"),
        ({"confidential": WORDS, "t": -1}, "t: must be above 0"),
        ({"confidential": WORDS[1:], "l": 2}, r"confidential: must have shape \(90,\)"),
        ({"confidential": WORDS, "t": 0.3, "reference": {"flu": 0.4, "cold": 0.3}}, "reference: shares must sum to 1"),
        ({"confidential": WORDS, "t": 0.3, "reference": [{1: 0.5, 2: 0.5}] * 2}, "confidential: must have 2 columns"),
        ({"confidential": WORDS, "t": 0.3, "reference": {1: 0.5, 2: 0.5}}, "confidential: must be numbers"),
        ({"confidential": WORDS, "l": 2, "constraints": None}, "constraints: must be ClusterConstraints"),
    ],
)
def test_faults_are_named(given: dict[str, Any], message: str) -> None:
    if "confidential" in given:
        given = given | {"confidential": np.array(given["confidential"], object)}
    with pytest.raises(ParameterError, match=message):
        microaggregate(TABLE, 4, **given)


@pytest.mark.parametrize("was_compiled", [False, True])
def test_a_table_waits_for_no_compiler_that_takes_longer_than_plain_python(
    monkeypatch: pytest.MonkeyPatch, *, was_compiled: bool
) -> None:
    """4,000 narrow records take 5 s as plain Python, what they need is compiled in 20 s; wide ones take minutes."""
    asked: list[str] = []

    def was_form_compiled(form: str) -> bool:
        asked.append(form)
        return was_compiled

    monkeypatch.setattr("shoal.kernels.cache.was_compiled", was_form_compiled)
    monkeypatch.setattr("shoal.kernels.jit.use_compiled", lambda: asked.append("compiled"))
    monkeypatch.setattr(microaggregation, "compile_if_large", lambda n, d, **how: compile_if_large(n + 3_990, d, **how))
    values = np.arange(20.0).reshape(-1, 2)
    microaggregate(values, 3, "mdav")
    assert asked == ["table-mdav-none", *(["compiled"] if was_compiled else [])]
    microaggregate(np.vstack([values, values[:1]]), 3, "mdav")
    assert asked[-2:] == ["table-mdav-none", "compiled"]
    asked.clear()
    microaggregate(np.arange(50.0).reshape(-1, 5), 3, "mdav")
    assert asked == ["compiled"]


def test_compiled_kernels_of_a_table_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    marked: list[str] = []
    monkeypatch.setattr(microaggregation, "mark_compiled", marked.append)
    monkeypatch.setattr(microaggregation, "_noted", set())
    for is_compiled in (False, True, True):
        monkeypatch.setattr(microaggregation, "is_compiled", lambda found=is_compiled: found)
        microaggregate(np.arange(20.0).reshape(-1, 2), 3, "mdav")
    assert marked == ["table-mdav-none"]
