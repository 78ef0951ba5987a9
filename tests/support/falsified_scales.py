"""Falsified releases: what is published of categories, ranks, times and missing values."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from support.named_falsifications import Falsification
from support.scaled_release import ScaledRelease, scaled

__all__ = ["FALSIFICATIONS"]

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


def without_evidence(change: Change) -> Change:
    """Return a change after which the judge gets no evidence."""

    def changed(release: ScaledRelease) -> None:
        change(release)
        release.has_evidence = False

    return changed


def with_value(index: int, **values: Any) -> Change:
    """Return a change of a record of the original, which its cluster keeps."""
    return lambda release: release.records[index].update(values)


def stating(**fields: Any) -> Change:
    """Return a summary that is sound but for these fields."""

    def changed(release: ScaledRelease) -> None:
        release.summary = {
            "records_in": 12,
            "released": 12,
            "suppressed": {},
            "quarantined": {},
            "held": 0,
            "clusters": 3,
            **fields,
        }

    return changed


def made(form: str, change: Change) -> Callable[[], ScaledRelease]:
    """Return a maker of the release of a form after a change."""

    def make() -> ScaledRelease:
        release = scaled(form)
        change(release)
        return release

    return make


def _all_of(*entries: tuple[str, str, int, str, Change]) -> list[Falsification]:
    return [
        Falsification(name, f"scales, {form}", made(form, change), code, check)
        for form, name, code, check, change in entries
    ]


def spelling(true_value: object, published: object) -> Change:
    """Return a change of category F, which the first cluster publishes, to another one and a spelling of it."""

    def changed(release: ScaledRelease) -> None:
        for record in release.records:
            if record["sex"] == "F":
                record["sex"] = true_value
        release.published[0]["sex"] = published

    return changed


def counting_look_alikes(release: ScaledRelease) -> None:
    """Count two spellings of a category as one, which then is the most frequent."""
    for record, sex in zip(release.records, ("é", _DECOMPOSED, "M", "X"), strict=False):
        record["sex"] = sex
    release.published[0]["sex"] = "é"


def with_deleted_member(release: ScaledRelease) -> None:
    """Let the message of a member be one that deletes it."""
    release.deleted = frozenset({3})


_DECOMPOSED = unicodedata.normalize("NFD", "é")

FALSIFICATIONS: list[Falsification] = _all_of(
    ("jsonl", "a mode that is not the most frequent category", 1, "nothing_else", publishing(2, sex="M")),
    ("jsonl", "of two equally frequent categories the larger one", 1, "nothing_else", publishing(0, sex="M")),
    ("table", "of two equally frequent categories the one that is rarer", 1, "nothing_else", publishing(0, sex="F")),
    ("jsonl", "an ancestor of some members alone", 1, "nothing_else", publishing(1, code="lung")),
    ("jsonl", "a leaf as the ancestor of two leaves", 1, "nothing_else", publishing(0, code="I21")),
    ("jsonl", "the root in place of a lower ancestor", 1, "nothing_else", publishing(0, code="any")),
    ("jsonl", "an inner node as the mode", 1, "nothing_else", publishing(0, job="lung")),
    ("jsonl", "a leaf that occurs nowhere", 1, "nothing_else", publishing(0, job="J99")),
    ("jsonl", "a category that occurs nowhere", 1, "nothing_else", publishing(0, sex="Q")),
    (
        "jsonl",
        "a category that occurs nowhere, without evidence",
        1,
        "categories",
        without_evidence(publishing(0, sex="Q")),
    ),
    ("jsonl", "the upper median of ranks", 1, "nothing_else", publishing(1, stage="III")),
    ("jsonl", "a rank that is not in the order", 1, "values", publishing(1, stage="V")),
    ("jsonl", "an item of the order as a string in place of a number", 1, "values", publishing(2, stage="4")),
    ("jsonl", "a time finer than its step", 1, "values", publishing(0, born="1950-01-24")),
    ("jsonl", "a time rounded to the wrong month", 1, "nothing_else", publishing(0, born="1950-01-01")),
    ("jsonl", "a date with a time of day", 1, "values", publishing(0, born="1950-02-01T00:00:00Z")),
    ("jsonl", "a time outside its bounds", 1, "bounds", publishing(2, born="2021-02-01")),
    ("jsonl", "a value missing for one member alone", 1, "nothing_else", of_one_row(0, job=None)),
    ("jsonl", "a number missing for one member alone", 1, "nothing_else", of_one_row(11, mass=None)),
    ("jsonl", "a member keeps its value where the cluster misses it", 1, "nothing_else", of_one_row(6, mass=60)),
    ("jsonl", "a value that most members have is missing", 1, "nothing_else", publishing(0, job=None)),
    ("jsonl", "a value that one member alone has is published", 1, "nothing_else", publishing(1, mass=60)),
    ("jsonl", "missing values counted as a number", 1, "nothing_else", publishing(2, mass=61)),
    ("jsonl", "the text of a missing value as a category", 1, "values", publishing(0, sex="?")),
    ("jsonl", "missing where the policy does not allow it", 1, "values", publishing(0, sex=None)),
    ("jsonl", "a missing number as an empty text", 1, "grid", publishing(1, mass="")),
    (
        "jsonl",
        "a taxonomy edited after the release",
        1,
        "policy",
        with_edited_taxonomy,
    ),
    ("jsonl", "a steering attribute published", 1, "hidden", publishing(0, ward="a")),
    ("jsonl", "a category with a blank after it for one member", 1, "nothing_else", of_one_row(0, sex="F ")),
    ("jsonl", "a number as a string", 1, "grid", of_one_row(0, mass="72")),
    ("jsonl", "a truth value as a string", 1, "nothing_else", spelling(true_value=True, published="true")),
    (
        "jsonl",
        'the number 1 as the category "1"',
        1,
        "nothing_else",
        spelling(1, "1"),
    ),
    (
        "jsonl",
        "a category in its decomposed form",
        1,
        "nothing_else",
        spelling("é", _DECOMPOSED),
    ),
    (
        "jsonl",
        "members whose categories look alike as one category",
        1,
        "nothing_else",
        counting_look_alikes,
    ),
    ("jsonl", "a record with an unusable time in a cluster", 1, "existing", with_value(3, born="1950-01-32")),
    ("jsonl", "a record without a steering attribute in a cluster", 1, "existing", with_value(3, ward=None)),
    ("jsonl", "a summary with too small a loss of categories", 1, "accounts", stating(loss={"sex": 0.1})),
    ("jsonl", "a summary with too small a loss of ranks", 1, "accounts", stating(loss={"stage": 0.1})),
    ("jsonl", "a summary with too small a loss of times", 1, "accounts", stating(loss={"born": 0.0001})),
    ("jsonl", "a summary that counts dropped messages", 1, "accounts", stating(dropped={"deletes": 1})),
    ("csv", "a mode that is not the most frequent category", 1, "nothing_else", publishing(2, sex="M")),
    ("csv", "a category with a blank after it for one member", 1, "nothing_else", of_one_row(0, sex="F ")),
    ("csv", "a value missing for one member alone", 1, "nothing_else", of_one_row(0, job=None)),
    ("csv", "missing where the policy does not allow it", 1, "values", publishing(0, stage=None)),
    ("csv", "a time finer than its step", 1, "values", publishing(0, born="1950-01-24")),
    ("nested", "an undeclared field inside an object", 1, "hidden", publishing(0, **{"case.note": 1})),
    ("nested", "an ancestor of some members alone", 1, "nothing_else", publishing(1, code="lung")),
    ("nested", "a member that was deleted", 1, "existing", with_deleted_member),
)
