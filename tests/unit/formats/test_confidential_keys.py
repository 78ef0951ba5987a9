"""Keys of confidential values, and their bins in a reference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shoal.audit.fields import key_reader
from shoal.errors import ParameterError
from shoal.formats import NO_BIN, ConfidentialKeys, ReferenceBins
from shoal.policy import Policy
from support.policy_files import load

pytestmark = pytest.mark.unit

POLICY = """\
attributes:
  age: {{role: quasi_identifier, bounds: [0, 110]}}
  value: {{role: confidential, {options}}}
privacy: {{k: 3, t: 0.3}}
subject: every_record
missing_values: {missing}
"""


def policy_of(folder: Path, options: str, reference: str = "", missing: str = '["", "?"]') -> Policy:
    if reference:
        (folder / "reference.csv").write_text(reference)
        options += ", reference: reference.csv"
    return load(POLICY.format(options=options, missing=missing), folder)


def keys_of(folder: Path, options: str, missing: str = '["", "?"]') -> ConfidentialKeys:
    policy = policy_of(folder, options, missing=missing)
    return ConfidentialKeys(policy.confidential[0], policy.missing_values)


def bins_of(folder: Path, options: str, reference: str) -> ReferenceBins:
    policy = policy_of(folder, options, reference)
    return ReferenceBins(policy.confidential[0], policy.missing_values)


def test_letters_that_show_nothing_or_look_alike_are_one_value(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, "type: string")
    assert keys.keys([" flu\t", "flu\u00a0", "cafe\u0301"]) == ["flu", "flu", "café"]
    assert keys.keys(["flu\u200b", "\ufefffl\u00adu", "\uff46lu", "\ufb02u", "\u200b flu"]) == ["flu"] * 5
    assert keys.keys(["\u200b", "\uff1f", "+1", "Flu"]) == [None, None, "+1", "Flu"]
    assert keys_of(tmp_path, "type: any").keys(["\uff11", "1\u200b", "+1"]) == ["1", "1", "+1"]
    assert keys_of(tmp_path, "type: json").keys(['["\ufb02u"]', '["flu\u2060"]']) == ['["flu"]'] * 2


@pytest.mark.parametrize("kind", ["any", "string", "integer", "number", "boolean"])
def test_all_missing_values_have_one_key(kind: str, tmp_path: Path) -> None:
    keys = keys_of(tmp_path, f"type: {kind}")
    assert keys.keys([None, "", " ", "?", " ? "]) == [None] * 5


def test_a_number_that_equals_a_missing_one_is_missing(tmp_path: Path) -> None:
    assert keys_of(tmp_path, "type: any", '["-9"]').keys([-9, -9.0, "-9.0", "-90e-1"]) == [None] * 4
    assert keys_of(tmp_path, "type: string", '["-9"]').keys(["-9", "-9.0"]) == [None, "-9.0"]


JSON_SPELLINGS = [
    (['{"a":1}', '{"a":1.0}', '{"a":1e0}', '{"a":10e-1}', '{"a ":1}'], 1),
    (['{"a":1,"b":[2,{"d":3,"c":4}]}', '{"b":[2,{"c":4,"d":3.0}],"a":1}'], 1),
    (['"asthma"', '"asthma "', '"\\u0009asthma"'], 1),
    (['["\u00e1"]', '["a\u0301"]', '["\\u00e1"]'], 1),
    (["[0]", "[-0]", "[-0.0]"], 1),
    (['["a","b"]', '["b","a"]', '["a,b"]', '[["a"],"b"]', '["a","b",[]]'], 5),
    (['{"a":"1"}', '{"a":1}', '{"a":true}', '{"a":null}', '{"a":"true"}', '{"a":[1]}'], 6),
    (['{"a":1,"a ":2}', '{"a":2,"a ":1}'], 1),
    (['{"a":1,"a ":1}', '{"a":1}'], 2),
    (['"a\\"b"', '"a"', '"b"', '"A"', '"a\\\\"', "{}", "[]", "true", "false", "0", '""', '"null"'], 12),
]


@pytest.mark.parametrize(("texts", "distinct"), JSON_SPELLINGS)
def test_spellings_of_one_json_document_have_one_key(texts: list[str], distinct: int, tmp_path: Path) -> None:
    keys = keys_of(tmp_path, "type: json")
    assert len({keys.key_of_text(text) for text in texts}) == distinct
    assert len({key_reader("json", [""])(text) for text in texts}) == distinct
    assert len({key_reader("json", [""], "csv")(json.dumps(text)) for text in texts}) == distinct


def test_the_cache_of_texts_is_bounded(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, "type: string")
    for start in range(0, 20_000, 1000):
        keys.keys([f"x{number}" for number in range(start, start + 1000)])
    assert len(vars(keys)["_cache"]) <= 5096


def test_an_ordered_reference_takes_the_nearest_number_and_the_lower_of_two(tmp_path: Path) -> None:
    bins = bins_of(tmp_path, "type: number", "value,share\n30,0.2\n10,0.3\n20,0.5\n")
    assert (bins.distance, bins.shares.tolist()) == ("ordered", [0.3, 0.5, 0.2])
    assert [bins.bin_of(key) for key in ("-1e99", "10", "15", "15.0000000000000000001", "25", "26", "1e999999")] == [
        *(0, 0, 0, 1, 1, 2, 2)
    ]
    assert bins.bin_of(None) == 0, "missing, not listed: the lowest"


def test_a_listed_missing_value_is_the_lowest_bin_of_an_ordered_reference(tmp_path: Path) -> None:
    bins = bins_of(tmp_path, "type: number", "value,share\n10,0.3\n,0.2\n20,0.5\n")
    assert bins.shares.tolist() == [0.2, 0.3, 0.5]
    assert [bins.bin_of(key) for key in (None, "-5", "12", "16")] == [0, 1, 1, 2]


def test_an_ordered_reference_has_no_bin_for_a_text(tmp_path: Path) -> None:
    bins = bins_of(tmp_path, "type: any", "value,share\n10,0.5\n20,0.5\n")
    assert bins.distance == "ordered"
    assert [bins.bin_of(key) for key in ("high", "true", "007")] == [NO_BIN] * 3


def test_an_order_gives_every_category_a_bin(tmp_path: Path) -> None:
    options = "scale: ordinal, order: [low, mid, high]"
    bins = bins_of(tmp_path, options, "value,share\nhigh,0.25\nmid,0.75\n")
    assert (bins.distance, bins.shares.tolist()) == ("ordered", [0.0, 0.75, 0.25])
    assert [bins.bin_of(key) for key in ("low", "mid", "high", None, "none")] == [0, 1, 2, 1, NO_BIN]
    listed = bins_of(tmp_path, options, "value,share\nhigh,0.25\n?,0.75\n")
    assert listed.shares.tolist() == [0.75, 0.0, 0.0, 0.25]
    assert listed.bin_of(None) == 0


def test_json_has_the_key_of_its_canonical_text(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, "type: json", missing='["{}"]')
    assert keys.keys(['{"a":1}', None, "{}"]) == ['{"a":1}', None, "{}"]
    assert keys.key_of_text('{ "a" : 1 }') == '{"a":1}'
    with pytest.raises(ParameterError):
        keys.key_of_text("{")


def test_bins_of_a_taxonomy_are_in_the_order_of_the_tree(tmp_path: Path) -> None:
    options = "scale: nominal, taxonomy: {lung: [flu, asthma], bone: [break]}"
    bins = bins_of(tmp_path, options, "value,share\nflu,0.5\nbreak,0.25\nscurvy,0.15\n?,0.1\n")
    assert bins.distance == "hierarchical"
    places = {key: bins.bin_of(key) for key in ("break", "asthma", "flu", None, "scurvy", "other", "another")}
    assert places == {"break": 0, "asthma": 1, "flu": 2, None: 3, "scurvy": 4, "other": 5, "another": 5}
    assert bins.shares.tolist() == pytest.approx([0.25, 0, 0.5, 0.1, 0.15, 0])
    assert bins.paths.tolist() == [[0, 0], [1, 1], [2, 1], [3, 2], [4, 3], [5, 4]]


def test_a_table_can_be_compared_with_its_own_values(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "type: any")
    attribute = policy.confidential[0]
    assert attribute.distance is None
    numbers = ReferenceBins(attribute, policy.missing_values, {"3": 2, None: 1, "1": 4})
    assert (numbers.distance, numbers.shares.tolist()) == ("ordered", [1, 4, 2])
    texts = ReferenceBins(attribute, policy.missing_values, {"3": 2, "x": 1})
    assert (texts.distance, texts.shares.tolist()) == ("equal", [2, 1, 0])
    with pytest.raises(ParameterError, match="reference"):
        ReferenceBins(attribute, policy.missing_values)


def test_truth_values_are_no_numbers(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, "type: any")
    assert keys.keys([True, False, 1, 0, "true"]) == ["true", "false", "1", "0", "true"]
