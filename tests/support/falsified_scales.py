"""Falsified releases: what is published of categories, ranks, times and missing values."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from support.named_falsifications import Falsification, editor, maker, makers_of
from support.scaled_release import ScaledRelease, scaled

Change = Callable[[ScaledRelease], object]


def publishing(cluster: int, **values: Any) -> Change:
    """Return a change of what one cluster publishes."""
    return lambda release: release.published[cluster].update(values)


def of_one_row(index: int, **values: Any) -> Change:
    """Return a change of one row of a cluster."""
    return lambda release: release.changes.update({index: values})


def with_edited_taxonomy(release: ScaledRelease) -> None:
    """Give the judge a taxonomy in which another leaf is below the node that was published."""
    tree = {"any": {"heart": ["I21", "J18"], "lung": ["I50", "J45"]}}
    release.document = deepcopy(release.document)
    release.document["attributes"]["code"]["taxonomy"] = tree


@editor
def without_evidence(release: ScaledRelease, change: Change) -> None:
    """Change a release, and give the judge no evidence."""
    change(release)
    release.has_evidence = False


def with_value(index: int, **values: Any) -> Change:
    """Return a change of a record of the original, which its cluster keeps."""
    return lambda release: release.records[index].update(values)


@editor
def stating(release: ScaledRelease, /, **fields: Any) -> None:
    """Give a summary that is sound but for these fields."""
    counts = {"records_in": 12, "released": 12, "suppressed": {}, "quarantined": {}, "held": 0, "clusters": 3}
    release.summary = counts | fields


def of_form(form: str, *entries: tuple[str, str, Change]) -> list[Falsification]:
    """Return falsifications of the release of a form: name, check and change of each."""
    return makers_of(f"scales, {form}", *((name, check, changed(form, change)) for name, check, change in entries))


@maker
def changed(form: str, change: Change) -> ScaledRelease:
    release = scaled(form)
    change(release)
    return release


@editor
def spelling(release: ScaledRelease, true_value: object, published: object) -> None:
    """Change category F, which the first cluster publishes, to another one and a spelling of it."""
    for record in release.records:
        if record["sex"] == "F":
            record["sex"] = true_value
    release.published[0]["sex"] = published


def counting_look_alikes(release: ScaledRelease) -> None:
    """Count two spellings of a category as one, which then is the most frequent."""
    for record, sex in zip(release.records, ("é", _DECOMPOSED, "M", "X"), strict=False):
        record["sex"] = sex
    release.published[0]["sex"] = "é"


def with_deleted_member(release: ScaledRelease) -> None:
    """Let the message of a member be one that deletes it."""
    release.deleted = frozenset({3})


_DECOMPOSED = unicodedata.normalize("NFD", "é")

FALSIFICATIONS: list[Falsification] = [
    *of_form(
        "jsonl",
        ("a mode that is not the most frequent category", "nothing_else", publishing(2, sex="M")),
        ("of two equally frequent categories the larger one", "nothing_else", publishing(0, sex="M")),
    ),
    *of_form(
        "table", ("of two equally frequent categories the one that is rarer", "nothing_else", publishing(0, sex="F"))
    ),
    *of_form(
        "jsonl",
        ("an ancestor of some members alone", "nothing_else", publishing(1, code="lung")),
        ("a leaf as the ancestor of two leaves", "nothing_else", publishing(0, code="I21")),
        ("the root in place of a lower ancestor", "nothing_else", publishing(0, code="any")),
        ("an inner node as the mode", "nothing_else", publishing(0, job="lung")),
        ("a leaf that occurs nowhere", "nothing_else", publishing(0, job="J99")),
        ("a category that occurs nowhere", "nothing_else", publishing(0, sex="Q")),
        ("a category that occurs nowhere, without evidence", "categories", without_evidence(publishing(0, sex="Q"))),
        ("the upper median of ranks", "nothing_else", publishing(1, stage="III")),
        ("a rank that is not in the order", "values", publishing(1, stage="V")),
        ("an item of the order as a string in place of a number", "values", publishing(2, stage="4")),
        ("a time finer than its step", "values", publishing(0, born="1950-01-24")),
        ("a time rounded to the wrong month", "nothing_else", publishing(0, born="1950-01-01")),
        ("a date with a time of day", "values", publishing(0, born="1950-02-01T00:00:00Z")),
        ("a time outside its bounds", "bounds", publishing(2, born="2021-02-01")),
        ("a value missing for one member alone", "nothing_else", of_one_row(0, job=None)),
        ("a number missing for one member alone", "nothing_else", of_one_row(11, mass=None)),
        ("a member keeps its value where the cluster misses it", "nothing_else", of_one_row(6, mass=60)),
        ("a value that most members have is missing", "nothing_else", publishing(0, job=None)),
        ("a value that one member alone has is published", "nothing_else", publishing(1, mass=60)),
        ("missing values counted as a number", "nothing_else", publishing(2, mass=61)),
        ("the text of a missing value as a category", "values", publishing(0, sex="?")),
        ("missing where the policy does not allow it", "values", publishing(0, sex=None)),
        ("a missing number as an empty text", "grid", publishing(1, mass="")),
        ("a taxonomy edited after the release", "policy", with_edited_taxonomy),
        ("a steering attribute published", "hidden", publishing(0, ward="a")),
        ("a category with a blank after it for one member", "nothing_else", of_one_row(0, sex="F ")),
        ("a number as a string", "grid", of_one_row(0, mass="72")),
        ("a truth value as a string", "nothing_else", spelling(true_value=True, published="true")),
        ('the number 1 as the category "1"', "nothing_else", spelling(1, "1")),
        ("a category in its decomposed form", "nothing_else", spelling("é", _DECOMPOSED)),
        ("members whose categories look alike as one category", "nothing_else", counting_look_alikes),
        ("a record with an unusable time in a cluster", "existing", with_value(3, born="1950-01-32")),
        ("a record without a steering attribute in a cluster", "existing", with_value(3, ward=None)),
        ("a summary with too small a loss of categories", "accounts", stating(loss={"sex": 0.1})),
        ("a summary with too small a loss of ranks", "accounts", stating(loss={"stage": 0.1})),
        ("a summary with too small a loss of times", "accounts", stating(loss={"born": 0.0001})),
        ("a summary that counts dropped messages", "accounts", stating(dropped={"deletes": 1})),
    ),
    *of_form(
        "csv",
        ("a mode that is not the most frequent category", "nothing_else", publishing(2, sex="M")),
        ("a category with a blank after it for one member", "nothing_else", of_one_row(0, sex="F ")),
        ("a value missing for one member alone", "nothing_else", of_one_row(0, job=None)),
        ("missing where the policy does not allow it", "values", publishing(0, stage=None)),
        ("a time finer than its step", "values", publishing(0, born="1950-01-24")),
    ),
    *of_form(
        "nested",
        ("an undeclared field inside an object", "hidden", publishing(0, **{"case.note": 1})),
        ("an ancestor of some members alone", "nothing_else", publishing(1, code="lung")),
        ("a member that was deleted", "existing", with_deleted_member),
    ),
]
