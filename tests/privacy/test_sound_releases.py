"""The judge accuses no sound release: random policies, originals and files, made by Shoal itself."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from support.sound_releases import no_disk, sound_release

pytestmark = pytest.mark.privacy

BATCH = 100
DAILY, NIGHTLY = 3, 100
"""Batches of releases in each test run, and at night."""


ONCE_ACCUSED = (104, 133, 3070, 3206, 3413, 7014, 7636, 1_004_359, 3_000_873)
"""Seeds whose releases a judge accused once."""

ONCE_FAILED = (53, 105, 116)
"""Seeds of protected values whose releases a judge accused, or a pipeline refused to make."""


def accusations(seeds: Iterable[int], *, scaled: bool = False, protected: bool = False) -> list[str]:
    """Return what the judge holds against the releases of these seeds."""
    found = []
    with no_disk():
        for seed in seeds:
            with TemporaryDirectory() as folder:
                release = sound_release(seed, Path(folder), scaled=scaled, protected=protected)
                found += release.accusations(Random(seed))
    return found


@pytest.mark.parametrize("batch", range(DAILY))
def test_no_sound_release_is_accused(batch: int) -> None:
    found = accusations(range(batch * BATCH, (batch + 1) * BATCH))
    assert not found, "\n\n".join(found)


def test_no_sound_release_of_categories_ranks_and_times_is_accused() -> None:
    found = accusations(range(BATCH), scaled=True)
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize("scaled", [False, True])
def test_no_sound_release_of_protected_values_is_accused(*, scaled: bool) -> None:
    found = accusations(range(BATCH), scaled=scaled, protected=True)
    assert not found, "\n\n".join(found)


def test_no_release_that_was_accused_once_is_accused_again() -> None:
    found = accusations(ONCE_ACCUSED) + accusations(ONCE_FAILED, protected=True)
    assert not found, "\n\n".join(found)


@pytest.mark.nightly
@pytest.mark.parametrize("batch", range(NIGHTLY))
def test_ten_thousand_sound_releases_are_not_accused(batch: int) -> None:
    first = 1_000_000 + batch * BATCH
    found = accusations(range(first, first + BATCH))
    assert not found, "\n\n".join(found)


@pytest.mark.nightly
@pytest.mark.parametrize("batch", range(NIGHTLY // 4))
def test_sound_releases_of_protected_values_are_not_accused(batch: int) -> None:
    first = 3_000_000 + batch * BATCH
    found = accusations(range(first, first + BATCH), scaled=batch % 2 == 0, protected=True)
    assert not found, "\n\n".join(found)


@pytest.mark.nightly
@pytest.mark.parametrize("batch", range(NIGHTLY // 4))
def test_sound_releases_of_categories_ranks_and_times_are_not_accused(batch: int) -> None:
    first = 2_000_000 + batch * BATCH
    found = accusations(range(first, first + BATCH), scaled=True)
    assert not found, "\n\n".join(found)
