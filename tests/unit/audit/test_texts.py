"""Packed texts: they come back as they were, and equal texts get equal codes, whatever is remembered."""

from __future__ import annotations

import numpy as np
import pytest
from shoal.audit import fields
from shoal.audit.clusters import RecomputedCluster
from shoal.audit.fields import Texts, field_codes, text_codes
from shoal.audit.originals import Originals
from shoal.audit.releases import PartitionRows, ReleasedRows
from shoal.audit.rows import check_ordered_release, compare_rows

pytestmark = pytest.mark.unit

# Lone surrogates stand for bytes of a file that are not UTF-8; two of them are not one character.
SOME = ["a", "", "b", "a", "ß", "\udcff", "\ud83d\ude00", "😀", "a\x00b", "", "c", "a\x00b", "\udcff", "b"]


@pytest.fixture(autouse=True)
def _forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "_MOST_REMEMBERED", 2)
    monkeypatch.setattr(fields, "_TEXTS_OF_PASS", 3)


def test_texts_come_back_as_they_were() -> None:
    found = Texts(SOME)
    assert list(found) == SOME
    assert found[3:7] == SOME[3:7]
    assert [found[place] for place in range(len(found))] == SOME


def test_equal_texts_have_equal_codes() -> None:
    places = np.arange(len(SOME))[::-1]
    for codes in (text_codes(len(SOME), SOME[::-1].__getitem__), field_codes(Texts(SOME), places)):
        assert len(set(zip(SOME[::-1], codes.tolist(), strict=True))) == len(set(SOME)) == 9
        assert sorted(set(codes.tolist())) == list(range(9))


def test_fields_have_the_codes_of_their_own_texts() -> None:
    pairs = Texts(["a\x00x", "b\x00x", "a\x00y", "b\x00x"])
    first, second = (field_codes(pairs, np.array([0, 1, 2, 3]), field).tolist() for field in (0, 1))
    assert first[0] == first[2] != first[1] == first[3]
    assert second[0] == second[1] == second[3] != second[2]


def cluster(number: int, quasi: str, unchanged: str, first: int) -> RecomputedCluster:
    return RecomputedCluster(0, number, np.arange(first, first + len(unchanged)), quasi, list(unchanged))


def rows_of(*shown: str, keeps_texts: bool = False) -> ReleasedRows:
    rows = PartitionRows(keeps_texts)
    for line, text in enumerate(shown, 1):
        rows.add(line, text, text[0], text[1])
    return ReleasedRows({0: rows}, [], is_export=False)


def test_rows_of_many_passes_are_compared_as_those_of_one() -> None:
    named = [cluster(number, quasi, "xyx", 3 * number) for number, quasi in enumerate("ABCDEFA")]
    shown = [f"{quasi}{letter}" for quasi in "ABCDEFA" for letter in "xyx"]
    sound = compare_rows(rows_of(*shown), named)
    assert [(check.examined, check.failed) for check in sound] == [(21, 0), (7, 0)]
    shown[3], shown[20], shown[12] = "Bz", "Fx", "Gx"
    extra, missing = compare_rows(rows_of(*shown), named)
    # A surplus is counted at the first of equal rows: line 16 is an Fx, of which there is one too many.
    assert (extra.failed, extra.places) == (3, [4, 13, 16])
    assert (missing.failed, missing.places) == (3, [1, 4, 6])


def test_an_ordered_release_without_the_texts_of_its_rows_is_not_judged() -> None:
    n = np.arange(2)
    known = Originals(np.zeros((2, 1)), n, Texts("xy"), n * 0, n, is_export=False)
    named = [cluster(0, "A", "xy", 0)]
    checks = check_ordered_release(rows_of("Ax", "Ay", keeps_texts=True), named, known, reveals=False, is_due=None)
    assert [check.failed for check in checks] == [0, 0, 0, 0]
    with pytest.raises(ValueError, match="zip"):
        check_ordered_release(rows_of("Ax", "Ay"), named, known, reveals=False, is_due=None)
