"""l-diversity, t-closeness and the largest share of a confidential value, as a policy asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from shoal.policy import Policy, advise, explain
from support.policy_files import faults, load

pytestmark = pytest.mark.unit

TEXT = """\
attributes:
  age: {{role: quasi_identifier, bounds: [0, 110], resolution: 1}}
  ill: {{role: confidential{ill}}}
  pay: {{role: confidential{pay}}}
subject: every_record
privacy: {{k: 5{privacy}}}
{more}
"""
STREAM = "stream: {delta: 20}"
REFERENCE = "value,share\nflu,0.5\ncold,0.3\nmumps,0.2\n"


def text(ill: str = "", pay: str = "", privacy: str = "", more: str = "") -> str:
    options = {"ill": ill, "pay": pay, "privacy": privacy}
    return TEXT.format(more=more, **{name: f", {value}" if value else "" for name, value in options.items()})


def policy(folder: Path, ill: str = "", pay: str = "", privacy: str = "", more: str = "") -> Policy:
    (folder / "ill.csv").write_text(REFERENCE)
    return load(text(ill, pay, privacy, more), folder)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("3", 3),
        ("{entropy: 2.5}", {"entropy": 2.5}),
        ("{recursive: [2, 3]}", {"recursive": [2.0, 3]}),
    ],
)
def test_each_form_of_l_is_shown_as_it_is_given(given: str, shown: object, tmp_path: Path) -> None:
    assert policy(tmp_path, privacy=f"l: {given}").resolved()["privacy"]["l"] == shown


@pytest.mark.parametrize(
    ("privacy", "share"),
    [
        ("l: 3", 0.5),
        ("l: 3, max_value_share: 0.8", 0.8),
        ("l: 3, max_value_share: 1", 1.0),
        ("l: {entropy: 3}", None),
        ("l: {recursive: [2, 3]}", None),
        ("t: 0.3", None),
        ("max_value_share: 0.7", 0.7),
        ("max_value_share: 1", None),
        ("l: {entropy: 2}, max_value_share: 1", 1.0),
        ("", None),
    ],
)
def test_the_largest_share_has_a_default_with_distinct_l_only(
    privacy: str, share: float | None, tmp_path: Path
) -> None:
    assert policy(tmp_path, privacy=privacy).max_value_share == share


def test_a_share_of_1_alone_protects_nothing(tmp_path: Path) -> None:
    found = policy(tmp_path, privacy="max_value_share: 1")
    assert not found.protects_values
    assert found.fingerprint == policy(tmp_path).fingerprint
    assert any("k alone does not protect" in sentence for sentence in advise(found))


def test_all_confidential_attributes_are_protected_unless_some_are_marked(tmp_path: Path) -> None:
    def names(*options: str) -> list[str]:
        return [attribute.name for attribute in policy(tmp_path, *options).protected]

    assert names("", "", "l: 2") == ["ill", "pay"]
    assert names("", "protect: true", "l: 2") == ["pay"]
    assert names("protect: true", "protect: true", "max_value_share: 0.9") == ["ill", "pay"]
    assert names() == []
    assert not policy(tmp_path).protects_values
    assert policy(tmp_path, privacy="t: 0.2").protects_values


@pytest.mark.parametrize(
    ("options", "stream", "distance"),
    [
        ("", False, None),
        ("", True, "equal"),
        ("type: string", False, "equal"),
        ("type: boolean", False, "equal"),
        ("type: json", False, "equal"),
        ("type: integer", False, "ordered"),
        ("type: number", True, "ordered"),
        ("type: number, scale: nominal", False, "equal"),
        ("scale: numeric", False, "ordered"),
        ("scale: ordinal, order: [a, b]", False, "ordered"),
        ("scale: nominal", True, "equal"),
        ("scale: nominal, taxonomy: {x: [a, b], y: [c]}", True, "hierarchical"),
    ],
)
def test_the_distance_follows_from_scale_type_and_taxonomy(
    options: str, stream: object, distance: str | None, tmp_path: Path
) -> None:
    found = policy(tmp_path, options, "", "l: 2", STREAM if stream else "")
    assert found.confidential[0].distance == distance
    assert found.quasi_identifiers[0].distance is None


def test_the_fingerprint_depends_on_content_alone(tmp_path: Path) -> None:
    given = ("reference: ill.csv, protect: true", "", "t: 0.2", STREAM)
    first = policy(tmp_path, *given).fingerprint
    (tmp_path / "other.csv").write_text("Value;Share\nmumps;0.2\n cold ;0.30\nflu;0.5\n")
    same = policy(tmp_path, given[0].replace("ill.csv", "other.csv"), *given[1:])
    assert same.fingerprint == first
    (tmp_path / "other.csv").write_text(REFERENCE.replace("0.3", "0.4").replace("0.2", "0.1"))
    assert policy(tmp_path, given[0].replace("ill.csv", "other.csv"), *given[1:]).fingerprint != first


def test_a_policy_without_these_fields_keeps_its_fingerprint(tmp_path: Path) -> None:
    assert policy(tmp_path).fingerprint == "828bb8ad18e2fb5bc4cf6a1fd374e813f65049cfc200e7abd5af74e1a9f8d055"
    assert set(policy(tmp_path).resolved()["attributes"]["ill"]) == {"role", "type"}


@pytest.mark.parametrize(
    ("options", "path", "words"),
    [
        ({"privacy": "l: 2.5"}, "privacy.l", "integer"),
        ({"privacy": "l: three"}, "privacy.l", "{entropy: L}"),
        ({"privacy": "l: {}"}, "privacy.l", "{recursive: [C, L]}"),
        ({"privacy": "l: {recursive: [2, 3], entropy: 2}"}, "privacy.l", "{entropy: L} or"),
        ({"privacy": "l: {entrpy: 2}"}, "privacy.l.entrpy", "did you mean entropy?"),
        ({"privacy": "l: {entropy: .nan}"}, "privacy.l.entropy", "finite"),
        ({"privacy": "l: {recursive: [2]}"}, "privacy.l.recursive", "[c, l]"),
        ({"privacy": "l: 22", "more": STREAM}, "privacy.l", "delta + 1"),
        ({"privacy": "l: {recursive: [1, 22]}", "more": STREAM}, "privacy.l", "delta + 1"),
        ({"ill": "type: boolean", "privacy": "l: 4"}, "privacy.l", "attributes.ill has at most 3 values"),
        ({"ill": "scale: ordinal, order: [1, '1.0']"}, "attributes.ill.order", "names a value twice"),
        (
            {"ill": "scale: nominal, taxonomy: {x: ['1'], y: ['1.0']}", "privacy": "t: 0.2"},
            "attributes.ill.taxonomy",
            "names a value twice",
        ),
        (
            {"ill": "type: any, scale: nominal, taxonomy: {x: ['1e400'], y: ['10e399']}", "privacy": "l: 2"},
            "attributes.ill.taxonomy",
            "names a value twice",
        ),
        (
            {"ill": "type: boolean", "privacy": "max_value_share: 0.3"},
            "privacy.max_value_share",
            "attributes.ill has at most 3 values",
        ),
        ({"ill": "protect: true", "privacy": "max_value_share: 1"}, "attributes.ill.protect", "protects nothing"),
        ({"privacy": "max_value_share: 0.04", "more": STREAM}, "privacy.max_value_share", "delta + 1"),
        ({"ill": "protect: true"}, "attributes.ill.protect", "protects nothing"),
        ({"ill": "reference: ill.csv"}, "attributes.ill.reference", "privacy.t"),
        (
            {"ill": "reference: ill.csv", "pay": "protect: true", "privacy": "t: 0.2"},
            "attributes.ill.reference",
            "protect: true",
        ),
        ({"ill": "scale: time", "privacy": "l: 2"}, "attributes.ill.scale", "no scale time; give its times"),
        ({"ill": "scale: ordinal", "privacy": "l: 2"}, "attributes.ill.order", "missing"),
        ({"ill": "order: [a, b]", "privacy": "l: 2"}, "attributes.ill.order", "only for scale ordinal"),
        ({"ill": "taxonomy: {x: [a]}", "privacy": "l: 2"}, "attributes.ill.taxonomy", "only for scale nominal"),
        ({"ill": "type: string, scale: numeric"}, "attributes.ill.scale", "no meaning for type string"),
        ({"ill": "type: json, scale: nominal, taxonomy: {x: [a]}"}, "attributes.ill.taxonomy", "json"),
        ({"ill": "missing: group"}, "attributes.ill.missing", "only for a quasi_identifier"),
        ({"ill": "publish: mode"}, "attributes.ill.publish", "only for a quasi_identifier"),
        ({"ill": "weight: 2"}, "attributes.ill.weight", "only for a quasi_identifier"),
        ({"ill": "bounds: [0, 1]"}, "attributes.ill.bounds", "steering.dependence"),
    ],
)
def test_a_fault_is_at_its_field_and_names_the_remedy(
    options: dict[str, str], path: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "ill.csv").write_text(REFERENCE)
    found = faults(text(**options), tmp_path)
    assert list(found) == [path]
    assert words in found[path][1]
    assert found[path][0] == (6 if path.startswith("privacy") else 3)


def test_a_stream_needs_a_reference_for_each_protected_attribute(tmp_path: Path) -> None:
    found = faults(text(privacy="t: 0.2", more=STREAM), tmp_path)
    assert list(found) == ["attributes.ill.reference", "attributes.pay.reference"]
    assert "shoal reference POLICY -i SAMPLE -o FILE" in found["attributes.pay.reference"][1]
    marked = policy(tmp_path, "protect: true, reference: ill.csv", "", "t: 0.2", STREAM)
    assert [attribute.name for attribute in marked.protected] == ["ill"]
    assert policy(tmp_path, privacy="t: 0.2").t == 0.2, "a table has a distribution of its own"


def test_protection_is_for_confidential_attributes(tmp_path: Path) -> None:
    base = text(privacy="l: 2").replace("resolution: 1", "resolution: 1, protect: true, reference: a.csv")
    assert list(faults(base, tmp_path)) == ["attributes.age.protect", "attributes.age.reference"]
    nothing = text(privacy="l: 2, max_value_share: 0.5, t: 0.1").replace("role: confidential", "role: identifier")
    assert list(faults(nothing, tmp_path)) == ["privacy.l", "privacy.max_value_share", "privacy.t"]


def test_dependence_in_a_stream_needs_the_range_of_each_number(tmp_path: Path) -> None:
    steering = f"{STREAM}\nsteering: {{dependence: 0.5}}"
    found = faults(text("type: number", "type: string", more=steering), tmp_path)
    assert list(found) == ["attributes.ill.bounds"]
    assert "range" in found["attributes.ill.bounds"][1]
    ready = policy(tmp_path, "type: number, bounds: [0, 9]", "bounds: [0, 100]", more=steering)
    assert [attribute.bounds for attribute in ready.dependence_attributes] == [(0.0, 9.0), (0.0, 100.0)]
    assert list(faults(text(more=steering), tmp_path)) == ["steering.dependence"]
    assert list(faults(text("bounds: [9, 0]", more=steering), tmp_path)) == ["attributes.ill.bounds"]
    assert policy(tmp_path, "type: number", more="steering: {dependence: 0.5}").dependence == 0.5


def test_dependence_conflicts_with_t_and_not_with_l(tmp_path: Path) -> None:
    options = {"ill": "type: number, bounds: [0, 9]", "more": f"{STREAM}\nsteering: {{dependence: 0.5}}"}
    found = policy(tmp_path, privacy="l: 2", **options)
    assert any(sentence.startswith("steering.dependence: draws") for sentence in advise(found))
    refused = faults(text(privacy="t: 0.1", **options), tmp_path)
    assert "conflicts with privacy.t" in refused["steering.dependence"][1]


def test_each_requirement_is_explained(tmp_path: Path) -> None:
    found = explain(policy(tmp_path, "reference: ill.csv", "protect: false", "l: 3, t: 0.4"))
    assert found == {
        "privacy.l": (
            "distinct l-diversity, l = 3 (with k = 5 also called p-sensitive k-anonymity, p = 3), for ill and pay"
        ),
        "privacy.max_value_share": "at most 0.5 of the people of a cluster have one value, for ill and pay",
        "privacy.t": (
            "t-closeness, t = 0.4: ill against a reference of 3 values, where all values are equally far from each "
            "other; pay against the values of the table, where values are compared by rank if all are numbers"
        ),
        "privacy": "every algorithm keeps this: records are exchanged and clusters are merged until all clusters do",
    }
    streamed = explain(policy(tmp_path, privacy="l: {entropy: 2.5}", more=STREAM))
    assert streamed["stream.rule"] == "auto: block, which suppresses the fewest records under l, t and shares of values"
    assert streamed["privacy.l"].startswith("entropy l-diversity, l = 2.5: the entropy of")
    assert streamed["privacy"].startswith("rule block keeps this, as every rule does")
    recursive = explain(policy(tmp_path, privacy="l: {recursive: [2, 3]}"))
    assert recursive["privacy.l"] == "recursive (c, l)-diversity, c = 2, l = 3, for ill and pay"
    assert explain(policy(tmp_path)) == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "attributes.ill, attributes.pay: k alone does not protect"),
        ({}, "(single_value_share.NAME), and of how many records (single_value_records.NAME)"),
        ({"privacy": "l: 3, max_value_share: 1"}, "distinct l alone is weak"),
        ({"privacy": "l: 3, max_value_share: 0.1"}, "privacy.max_value_share: below 1/k"),
        ({"privacy": "l: 6"}, "privacy.l: above k"),
        ({"ill": "type: number", "privacy": "l: 2"}, "attributes.ill: privacy.l and privacy.max_value_share count"),
        ({"ill": "type: json", "privacy": "l: 2"}, "attributes.ill: an object or a list is one value"),
        ({"ill": "protect: true", "privacy": "l: 2"}, "attributes.pay: not protected"),
        (
            {"ill": "reference: ill.csv", "privacy": "t: 0.01"},
            "attributes.ill: a cluster within privacy.t of its reference has at least 10 records",
        ),
        (
            {"ill": "reference: ill.csv, scale: nominal, taxonomy: {x: [flu, cold], y: [mumps]}", "privacy": "t: 0.01"},
            "attributes.ill: a cluster within privacy.t of its reference has at least 10 records",
        ),
        (
            {"ill": "reference: ill.csv, protect: true", "privacy": "t: 0.0001", "more": "stream: {delta: 8}"},
            "attributes.ill: no cluster of up to 9 records is within privacy.t",
        ),
        (
            {"ill": "reference: ill.csv, scale: nominal, taxonomy: {x: [flu, cold], y: [gout]}", "privacy": "t: 0.5"},
            "attributes.ill: 1 values of its reference are not in its taxonomy",
        ),
    ],
)
def test_weak_and_costly_settings_are_told(options: dict[str, str], words: str, tmp_path: Path) -> None:
    assert any(words in sentence for sentence in advise(policy(tmp_path, **options)))


@pytest.mark.parametrize("t", ["0.25", "0.3"])
def test_advice_compares_a_reference_with_a_taxonomy_by_value(t: str, tmp_path: Path) -> None:
    """As the engine does: 1.0 is the leaf 1, so near 2.0, and four records can be within t."""
    (tmp_path / "pays.csv").write_text("value,share\n1.0,0.25\n2.0,0.25\n3.0,0.25\n4.0,0.25\n")
    tree = "{any: {low: ['1', '2'], high: ['3', '4']}}"
    attribute = f"type: any, scale: nominal, taxonomy: {tree}, reference: pays.csv, protect: true"
    told = "".join(advise(policy(tmp_path, attribute, privacy=f"t: {t}")))
    assert "not in its taxonomy" not in told
    assert "has at least" not in told


def test_a_common_setting_is_not_advised_against(tmp_path: Path) -> None:
    told = list(advise(policy(tmp_path, "type: string", "type: string", "l: 3")))
    assert all(sentence.startswith("subject: every_record") for sentence in told)
