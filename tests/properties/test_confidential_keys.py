"""Keys and bins of confidential values: what is equal, what is near, and what does not count."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shoal.audit.fields import key_reader
from shoal.formats import ConfidentialKeys, ReferenceBins
from shoal.formats.json_text import canonical_json
from shoal.policy import FieldType, Policy
from shoal.policy.schema import Document
from support.reference_samples import policy_of

pytestmark = pytest.mark.property

NUMBERS = st.one_of(st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False))
SPELLINGS = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    NUMBERS.map(repr),
    st.text(st.sampled_from("01-+.eE 9\t\u00a0ae\u0301\u00e9?\u0667\u200b\uff11\u00a8"), max_size=6),
    st.sampled_from(
        [
            *("true", "TRUE", "", "?", " ? ", "-9", "-9.0", "-90e-1"),
            *("1e99999999999999999", "1e9999999999999999999", "12e999999999999999999"),
        ]
    ),
)
"""Values of type any, among them different spellings of one value."""
_TEXTS = st.text(st.sampled_from('1a\\" \t\u00a0e\u0301\u00e9\u200b{}[],:'), max_size=3)
DOCUMENTS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.sampled_from([0, -0.0, 1, 1.0, 10, 1e1, 1e16, 10**16]), _TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_TEXTS, inner, max_size=3)),
    max_leaves=6,
)
KINDS: list[FieldType] = ["any", "string"]
COUNTS = st.dictionaries(NUMBERS.map(repr), st.integers(1, 9), min_size=1, max_size=8)


@given(NUMBERS, st.integers(-3, 3), st.sampled_from(["", " ", "\t", "\u00a0"]))
def test_a_number_and_its_spellings_have_one_key(number: float, shift: int, blank: str) -> None:
    keys = ConfidentialKeys(policy_of(2).confidential[0], [""])
    digits = Decimal(repr(number)).scaleb(shift)
    spellings = [number, repr(number), f"{blank}{digits}e{-shift}{blank}".replace("E", "e")]
    if "e" in str(digits).lower():
        spellings.pop()
    assert len(set(keys.keys(spellings))) == 1


@given(st.lists(SPELLINGS, min_size=2, max_size=12), st.sampled_from(KINDS), st.sampled_from([[""], ["", "?", "-9"]]))
def test_the_judge_takes_the_same_values_for_equal(values: list[object], kind: FieldType, missing: list[str]) -> None:
    if kind == "string":
        values = [value for value in values if value is None or isinstance(value, str)]
    engine = ConfidentialKeys(policy_of(2, type=kind).confidential[0], missing)
    read = key_reader(kind, missing)
    ours, judged = engine.keys(values), [read(json.dumps(value)) for value in values]
    assert [[one == other for other in ours] for one in ours] == [[one == other for other in judged] for one in judged]


@given(st.lists(DOCUMENTS, min_size=2, max_size=8), st.randoms())
def test_the_judge_takes_the_same_documents_for_equal(values: list[object], order: random.Random) -> None:
    documents = [value for value in values for _ in range(2) if value is not None]
    texts = [canonical_json(json.dumps(_shuffled(value, order)).encode()) for value in documents]
    engine = ConfidentialKeys(policy_of(2, type="json").confidential[0], [""]).keys(texts)
    judged = [key_reader("json", [""])(text or "") for text in texts]
    assert engine[::2] == engine[1::2]
    assert [[one == other for other in engine] for one in engine] == [
        [one == other for other in judged] for one in judged
    ]


def _shuffled(value: object, order: random.Random) -> object:
    """Return a JSON value whose members are in another order."""
    if isinstance(value, list):
        return [_shuffled(item, order) for item in value]
    if isinstance(value, dict):
        return {name: _shuffled(item, order) for name, item in order.sample(sorted(value.items()), len(value))}
    return value


@given(COUNTS, NUMBERS)
def test_the_bin_of_a_number_is_the_nearest_listed_one(counts: dict[str, int], number: float) -> None:
    attribute = policy_of(2, type="number").confidential[0]
    keys = ConfidentialKeys(attribute, [""])
    listed = {keys.key(text): float(count) for text, count in counts.items()}
    bins = ReferenceBins(attribute, [""], listed)
    ordered = sorted(listed, key=lambda key: Fraction(key or 0))
    value = Fraction(repr(number))
    nearest = min(range(len(ordered)), key=lambda index: (abs(Fraction(ordered[index] or 0) - value), index))
    assert bins.bin_of(keys.key(number)) == nearest
    assert bins.shares.tolist() == [listed[key] for key in ordered]


@given(st.permutations(["a", "b", "c", "d", None]), st.permutations(["a", "b", "c", "x"]))
def test_the_order_of_rows_and_leaves_does_not_count(texts: list[str | None], leaves: list[str]) -> None:
    groups = {"a": "1", "b": "1", "c": "2", "x": "2"}
    tree: dict[str, list[str]] = {}
    for leaf in leaves:
        tree.setdefault(groups[leaf], []).append(leaf)
    attribute = _nominal(tree).confidential[0]
    counts = dict.fromkeys(texts, 1.0) | {"b": 3.0}
    bins = ReferenceBins(attribute, [""], counts)
    assert [bins.bin_of(key) for key in ("a", "b", "c", "x", None, "d", "other")] == [0, 1, 2, 3, 4, 5, 6]
    assert bins.shares.tolist() == [1, 3, 1, 0, 1, 1, 0]
    assert bins.paths.tolist() == [[0, 0], [1, 0], [2, 1], [3, 1], [4, 2], [5, 3], [6, 4]]


def _nominal(tree: dict[str, list[str]]) -> Policy:
    attributes = {
        "age": {"role": "quasi_identifier"},
        "value": {"role": "confidential", "scale": "nominal", "taxonomy": tree},
    }
    content = {"attributes": attributes, "subject": "every_record", "privacy": {"k": 2}}
    return Policy.from_document(Document.model_validate(content))
