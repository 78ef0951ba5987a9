"""Checks of l, of the largest share of a value and of t in the audit, worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shoal.audit.confidential import ValueClass, check_values
from shoal.audit.evidence import AuditScope
from shoal.audit.fields import Texts
from shoal.audit.measures import check_values_of_rows
from shoal.audit.originals import Originals
from shoal.audit.releases import PartitionRows, ReleasedRows
from shoal.audit.unpublished import BreakableValues
from shoal.audit.verdict import Check
from support.making import SUBJECT, policy_of, quasi, unchanged_field

pytestmark = pytest.mark.unit

TREE = {"any": {"heart": ["I21", "I50"], "lung": ["J18", "J45"]}}


def checked(
    privacy: dict[str, Any],
    *clusters: list[str],
    people: list[int] | None = None,
    reference: str | None = None,
    folder: Path | None = None,
    **attribute: Any,
) -> dict[str, Check]:
    """Return the checks by name. A cluster is the texts of one confidential field."""
    if reference is not None and folder is not None:
        (folder / "reference.csv").write_text(f"value,share\n{reference}", encoding="utf-8")
        attribute["reference"] = str(folder / "reference.csv")
    attributes = {"who": SUBJECT, "age": quasi(0, 110), "ill": {"role": "confidential", **attribute}}
    unchanged = [text for cluster in clusters for text in cluster]
    n, numbers = len(unchanged), np.arange(len(unchanged))
    persons = numbers if people is None else np.array(people)
    originals = Originals(np.zeros((n, 1)), persons, Texts(unchanged), np.zeros(n, np.int64), numbers, is_export=False)
    ends = np.cumsum([len(cluster) for cluster in clusters])
    members = np.split(numbers, ends[:-1]) if clusters else []
    classes = [ValueClass(number, *own) for number, own in enumerate(zip(clusters, members, strict=True))]
    policy = policy_of(attributes, privacy={"k": 2, **privacy})
    return {check.name: check for check in (one.result() for one in check_values(policy, originals, classes))}


# ---------------------------------------------------------------- l


@pytest.mark.parametrize(
    ("clusters", "failed"),
    [
        ([['"a"', '"b"', '"b"']], 1),
        ([['"a"', '"a "', '" a"', '"b"']], 1),  # blanks make no other value
        ([["1", "1.0", '"1"', '"1.00"', '"1e0"']], 1),
        ([["true", '"true"', "1"]], 1),
        ([["null", '""', '" "', '"a"']], 1),  # missing is one value
        ([['"a"', '"b"', '"c"'], ['"a"', '"a"', '"b"'], ['"c"', '"c"', '"c"']], 2),
    ],
)
def test_distinct_values_are_counted_whatever_their_spelling(clusters: list[list[str]], failed: int) -> None:
    check = checked({"l": 3, "max_value_share": 1}, *clusters)["diversity"]
    assert (check.examined, check.failed) == (len(clusters), failed)
    assert check.status == ("broken" if failed else "holds")


def test_the_verdict_names_p_sensitive_k_anonymity() -> None:
    check = checked({"k": 3, "l": 2}, ['"a"', '"b"', '"b"'])["diversity"]
    assert "at least 2 different values of ill, of as many people (distinct l-diversity" in check.claim
    assert "with k = 3 also called p-sensitive k-anonymity, p = 2" in check.claim
    assert check.worst == 2
    assert "p-sensitive" not in checked({"k": 2, "l": 3}, ['"a"', '"b"', '"c"'])["diversity"].claim


@pytest.mark.parametrize(
    ("rule", "cluster", "holds", "worst"),
    [
        ({"entropy": 2}, ['"a"', '"b"'], True, 2.0),
        ({"entropy": 2}, ['"a"', '"b"', '"b"'], False, 3 / 2 ** (2 / 3)),
        ({"recursive": [2, 2]}, ['"a"', '"a"', '"b"'], False, 2.0),  # 2 < 2 * 1 does not hold
        ({"recursive": [2, 2]}, ['"a"', '"a"', '"b"', '"c"'], True, 1.0),
        ({"recursive": [1.1, 2]}, ['"a"'] * 11 + ['"b"'] * 10, False, 1.1),  # the float64 of 1.1 is above 11/10
        ({"recursive": [9, 3]}, ['"a"', '"b"'], False, None),  # fewer than three values
        ({"recursive": [0.5, 2]}, ['"a"', '"b"', '"c"'], False, 0.5),  # 1 < 0.5 * 2 does not hold
    ],
)
def test_entropy_and_recursive_diversity(
    rule: dict[str, Any],
    cluster: list[str],
    holds: bool,  # noqa: FBT001
    worst: float | None,
) -> None:
    check = checked({"l": rule}, cluster)["diversity"]
    assert check.status == ("holds" if holds else "broken")
    assert check.worst == (None if worst is None else pytest.approx(worst))


@pytest.mark.parametrize(("least", "word"), [(2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (21, "21st")])
def test_the_claim_of_recursive_diversity_has_an_ordinal(least: int, word: str) -> None:
    claim = checked({"l": {"recursive": [2, least]}}, ['"a"', '"b"'])["diversity"].claim
    assert f"less than 2 times as many people as the {word} most frequent and all rarer ones together" in claim


def test_the_limit_of_a_share_is_kept_exactly() -> None:
    thirds = ['"a"', '"b"', '"c"']
    assert checked({"max_value_share": 1 / 3}, thirds)["value_share"].status == "holds"
    assert checked({"max_value_share": 0.3333333}, thirds)["value_share"].status == "broken"
    assert checked({"max_value_share": 0.7}, ['"a"'] * 7 + ['"b"'] * 3)["value_share"].status == "holds"
    assert checked({"max_value_share": 0.1}, [f'"{number}"' for number in range(10)])["value_share"].status == "holds"


# ---------------------------------------------------------------- people, not records


ONE_OF_ELEVEN = [f'"{letter}"' for letter in "abcdefghij"] + ['"hiv"'] * 10
"""Ten records of one person, with ten values, and one of each of ten others."""
OF_ELEVEN = [0] * 10 + list(range(1, 11))


def test_the_values_of_one_person_hide_nothing_of_others() -> None:
    """Half of the records have one value, and 10 of 11 people."""
    found = checked({"l": 3}, ONE_OF_ELEVEN, people=OF_ELEVEN)
    assert (found["value_share"].status, found["value_share"].worst) == ("broken", 10 / 11)
    assert (found["diversity"].status, found["diversity"].worst) == ("broken", 2)
    found = checked({"l": 3}, ONE_OF_ELEVEN)
    assert (found["value_share"].worst, found["diversity"].worst) == (0.5, 11)


@pytest.mark.parametrize(
    ("rule", "worst"),
    [
        ({"entropy": 2}, 1.7),  # 10 of 11 weigh the same, and ten a hundred-and-tenth each
        ({"recursive": [3, 3]}, 10 / 0.9),
    ],
)
def test_entropy_and_recursive_diversity_weigh_people(rule: dict[str, Any], worst: float) -> None:
    check = checked({"l": rule}, ONE_OF_ELEVEN, people=OF_ELEVEN)["diversity"]
    assert check.status == "broken"
    assert check.worst == pytest.approx(worst, abs=0.05)
    assert checked({"l": rule}, ONE_OF_ELEVEN)["diversity"].status == "holds"


def test_a_value_counts_if_another_person_can_have_it() -> None:
    """The person of three values gives one of them; the two others of one value give that one."""
    values, people = ['"a"', '"b"', '"c"', '"a"', '"a"'], [0, 0, 0, 1, 2]
    assert checked({"k": 2, "l": 2}, values, people=people)["diversity"].worst == 2
    # Who has a alone leaves b to the other: the assignment of the first value is changed for the last.
    assert checked({"k": 2, "l": 2}, ['"a"', '"b"', '"a"'], people=[0, 0, 1])["diversity"].worst == 2


def test_the_reference_of_a_table_weighs_people() -> None:
    """The person of three records weighs one: a is three quarters of the table, and all or half of a cluster."""
    clusters, people = (['"a"', '"a"'], ['"b"', '"b"', '"a"']), [0, 1, 2, 2, 3]
    assert checked({"t": 0.9}, *clusters, people=people, type="string")["closeness"].worst == pytest.approx(0.25)
    assert checked({"t": 0.9}, *clusters, type="string")["closeness"].worst == pytest.approx(0.4)


# ---------------------------------------------------------------- t, compared with the table


@pytest.mark.parametrize(
    ("kind", "clusters", "distance"),
    [
        # Cumulative shares 1/2, 1, 1 against 1/4, 1/2, 3/4: differences 1/4, 1/2, 1/4 over three steps.
        ("integer", (["1", "2"], ["3", "4"]), 1 / 3),
        ("integer", (["1", "4"], ["2", "3"]), 1 / 6),
        ("integer", (["7", "7"], ["7"]), 0.0),
        ("integer", (["null", "1"], ["1", "1"]), 0.25),
        ("integer", (["9007199254740992"] * 2, ["9007199254740993"] * 2), 0.5),
        ("any", (['"1"', '" 2"'], ['"3"', '"4"']), 1 / 3),
        ("any", (['"01"', '" 2"'], ['"+3"', '"4."']), 1 / 3),
        ("any", (["1", "2"], ['"x"', "4"]), 0.5),
        ("any", (["true", "true"], ["1", "1"]), 0.5),
        ("string", (['"a"', '"a"'], ['"a "', '" a"']), 0.0),
        ("string", (['"a"', '"b"'], ['"a"', '"b"', '"c"', '"c"']), 1 / 3),
    ],
)
def test_the_worst_distance_is_the_largest_of_a_cluster(
    kind: str, clusters: tuple[list[str], ...], distance: float
) -> None:
    check = checked({"t": 0.9}, *clusters, type=kind)["closeness"]
    assert check.worst == pytest.approx(distance, abs=1e-12)
    assert (check.status, check.examined) == ("holds", len(clusters))
    assert check.claim == "no confidential attribute of a cluster is farther than 0.9 from the table"


def test_in_a_table_the_distance_follows_the_scale() -> None:
    clusters = ['"low"', '"mid"'], ['"low"', '"top"']
    order: dict[str, Any] = {"scale": "ordinal", "order": ["low", "mid", "high", "top"]}
    # Shares 1/2, 1/4, 0, 1/4. Of the first cluster the cumulative shares differ by 0, 1/4, 1/4.
    assert checked({"t": 0.9}, *clusters, **order)["closeness"].worst == pytest.approx(0.5 / 3)
    assert checked({"t": 0.9}, *clusters, scale="nominal")["closeness"].worst == pytest.approx(0.25)
    icd = ['"I21"', '"I50"'], ['"J18"', '"I21"']
    # Shares 1/2, 1/4, 1/4. In the second cluster a quarter moves from I50 over the root to J18.
    tree: dict[str, Any] = {"scale": "nominal", "taxonomy": TREE}
    assert checked({"t": 0.9}, *icd, **tree)["closeness"].worst == pytest.approx(0.25)
    assert checked({"t": 0.9}, ['"I21"'], ['"I50"'], **tree)["closeness"].worst == pytest.approx(0.25)


# ---------------------------------------------------------------- t, compared with a reference


@pytest.mark.parametrize(
    ("reference", "attribute", "cluster", "distance"),
    [
        ("a,0.5\nb,0.25\n,0.25\n", {}, ['"a"', "null", '""', '" a "'], 0.25),
        ("1,0.5\n3,0.5\n", {}, ["2", "2", "2.01", "9"], 0.0),  # 2 belongs to 1, the lower of two
        ("0.1,0.5\n0.3,0.5\n", {}, ["0.2", "0.3"], 0.0),  # as float64, 0.3 - 0.2 is less than 0.2 - 0.1
        ("1,0.5\n3,0.5\n", {}, ["null", '""', "3", "3"], 0.0),  # missing belongs to the lowest
        ("1,0.4\n3,0.4\n,0.2\n", {}, ["1", "1", "null", "null"], (0.3 + 0.4) / 2),
        ("1,0.25\n2,0.25\n3,0.25\n4,0.25\n", {"type": "integer"}, ["1", "2"], 1 / 3),
        (
            "low,0.5\ntop,0.5\n",
            {"scale": "ordinal", "order": ["low", "mid", "high", "top"]},
            ['"mid"', '"high"'],
            (0.5 + 0.0 + 0.5) / 3,
        ),
        ("I21,0.5\nJ18,0.5\n", {"scale": "nominal", "taxonomy": TREE}, ['"Z99"', '"J18"'], 0.5),
        ("I21,0.5\n,0.5\n", {"scale": "nominal", "taxonomy": TREE}, ["null", '"I21"'], 0.0),
        ("007,0.5\n7,0.5\n", {"type": "string"}, ['"007"', '"007"'], 0.5),
        # An ordered distance would be less than 1.
        ("1,0.5\nx,0.5\n", {}, ["2"], 1.0),
    ],
)
def test_clusters_are_compared_with_the_reference(
    tmp_path: Path, reference: str, attribute: dict[str, Any], cluster: list[str], distance: float
) -> None:
    check = checked({"t": 0.99}, cluster, reference=reference, folder=tmp_path, **attribute)["closeness"]
    assert check.worst == pytest.approx(distance, abs=1e-12)
    assert "from the reference of the policy in ill (" in check.claim


def test_only_protected_attributes_are_checked() -> None:
    assert checked({"l": 2}, ['"a"', '"b"'])["diversity"].status == "holds"
    ill, tag = {"role": "confidential", "protect": True}, {"role": "confidential", "publish_unchanged": True}
    policy = policy_of({"who": SUBJECT, "age": quasi(0, 110), "ill": ill, "tag": tag}, privacy={"k": 2, "l": 2})
    texts = ['"a"\x00"t"', '"b"\x00"t"'], ['"a"\x00"t"', '"a"\x00"u"']
    n = np.arange(4)
    originals = Originals(np.zeros((4, 1)), n, Texts([*texts[0], *texts[1]]), np.zeros(4, np.int64), n, is_export=False)
    classes = [ValueClass(number, list(own)) for number, own in enumerate(texts)]
    checks = check_values(policy, originals, classes)
    assert [(check.name, check.failed, check.places) for check in checks] == [
        ("diversity", 1, [1]),
        ("value_share", 1, [1]),
    ]


# ---------------------------------------------------------------- suppressions that a limit may explain


def can_be_broken(privacy: dict[str, Any], values: str, people: str | None = None) -> bool:
    """Whether records with these values, one letter each, may form a cluster of k subjects that exceeds a limit."""
    policy = policy_of(
        {"who": SUBJECT, "age": quasi(0, 110), "ill": unchanged_field("string")}, privacy={"k": 3, **privacy}
    )
    n = np.arange(len(values))
    subjects = n if people is None else np.array([ord(one) for one in people])
    unchanged = [f'"{value}"' for value in values]
    originals = Originals(np.zeros((len(n), 1)), subjects, Texts(unchanged), n * 0, n, is_export=False)
    return BreakableValues(policy, originals).can_be_broken(n)


@pytest.mark.parametrize(
    ("privacy", "values", "found"),
    [
        ({"l": 2, "max_value_share": 1}, "aabbcc", False),  # two of one value are not yet three people
        ({"l": 2, "max_value_share": 1}, "aaab", True),
        ({"l": 3, "max_value_share": 1}, "aabb", True),
        ({"l": 3, "max_value_share": 1}, "abcde", False),
        ({"l": 2}, "aabcd", True),  # two of three records have one value
        ({"max_value_share": 0.7}, "aabcd", False),
        ({"t": 0.9}, "abcd", True),
        ({"l": {"entropy": 2}}, "abcd", True),
        ({"l": {"recursive": [1, 2]}}, "abcd", True),
        ({}, "aaaa", False),
    ],
)
def test_a_suppression_is_possible_if_some_cluster_exceeds_a_limit(
    privacy: dict[str, Any],
    values: str,
    found: bool,  # noqa: FBT001
) -> None:
    assert can_be_broken(privacy, values) is found


def test_records_of_one_person_count_once_towards_k() -> None:
    assert not can_be_broken({"l": 2, "max_value_share": 1}, "aaaab", "xxxyz")
    assert can_be_broken({"l": 2, "max_value_share": 1}, "aaaab", "xxwyz")
    assert not can_be_broken({"max_value_share": 0.5}, "aaabc", "xxxyz")
    assert can_be_broken({"max_value_share": 0.5}, "aaabc", "xxwyz")


# ---------------------------------------------------------------- rows whose clusters are not known


@pytest.mark.parametrize(("people", "status"), [([0, 1, 2, 3], "broken"), ([0, 1, 2, 2], "not examined")])
def test_rows_prove_nothing_if_it_is_not_known_which_of_them_are_one_persons(people: list[int], status: str) -> None:
    """Rows with equal quasi-identifiers are a union of clusters, which satisfies what they do if people differ."""
    policy = policy_of(
        {"who": SUBJECT, "age": quasi(0, 110), "ill": {"role": "confidential"}}, privacy={"k": 2, "l": 2}
    )
    texts, numbers = ['"a"'] * 4, np.arange(4)
    originals = Originals(np.zeros((4, 1)), np.array(people), Texts(texts), numbers * 0, numbers, is_export=False)
    rows = PartitionRows()
    for line, text in enumerate(texts, 1):
        rows.quasi.append("40")
        rows.unchanged.append(text)
        rows.lines.append(line)
    release = ReleasedRows({0: rows}, [], is_export=False)
    scope = AuditScope.of(policy, table=None, partial=False, strict=False)
    checks = check_values_of_rows(policy, originals, release, scope)
    assert [check.result().status for check in checks] == [status] * 2
