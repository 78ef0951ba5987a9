"""A release of every scale that differs from a correct one in one published value, or in one byte, is broken."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.by_night import by_day
from support.scaled_release import FORMS, scaled

pytestmark = pytest.mark.property

VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, "", "?", "I", "III", 4, "4", 4.0, "M", "F", "F ", "f", True, "true", "I21", "heart", "lung", "any"),
        *("J18", "1950-02-01", "1950-02", "1950-02-01T00:00:00Z", "1980-06-01", 70, 72, 72.0, "72", 81, [], {"a": 1}),
    ]
)
NAMES = st.sampled_from(("stage", "sex", "code", "job", "born", "mass"))


@settings(max_examples=by_day(25, 100))
@given(st.sampled_from(FORMS), st.integers(0, 2), NAMES, VALUES, st.booleans(), st.booleans())
def test_any_other_published_value_is_noticed(
    form: str,
    cluster: int,
    name: str,
    value: Any,
    of_one_row: bool,  # noqa: FBT001
    has_evidence: bool,  # noqa: FBT001
) -> None:
    release = scaled(form)
    true_value = release.published[cluster][name]
    if form == "csv":
        assume(str("" if true_value is None else true_value) != str("" if value is None else value))
    assume((type(true_value), true_value) != (type(value), value))
    if of_one_row:
        release.changes = {release.clusters[cluster][1]: {name: value}}
    else:
        release.published[cluster][name] = value
    release.has_evidence = has_evidence
    with TemporaryDirectory() as folder:
        found = release.judged(Path(folder))
    assert found.code == 1 or (found.code == 2 and not has_evidence), found.text
