"""The judge accuses no sound release: random policies, originals and files, made by Shoal itself."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from support.by_night import at_night
from support.sound_releases import no_disk, sound_release

BATCH = 100
DAILY, NIGHTLY = 3, 100
"""Batches of releases whose seeds are small, and of those with large ones."""
PROTECTED = 30
"""Releases of protected values with small seeds."""
EVERY = 4
"""By day, of releases with small seeds every fourth is judged."""


ONCE_ACCUSED = (104, 133, 3070, 3206, 3413, 7014, 7636, 1_004_359, 3_000_873)
"""Seeds whose releases a judge accused once."""

ONCE_FAILED = (53, 105, 116)
"""Seeds of protected values whose releases a judge accused, or a pipeline refused to make."""

ONCE_ACCUSED_SCALED, ONCE_ACCUSED_PROTECTED = (2_002_464,), (3_000_231,)
"""Likewise, of releases with all scales, and of those with protected values, too."""


def accusations(seeds: Iterable[int], *, scaled: bool = False, protected: bool = False) -> list[str]:
    """Return what the judge holds against the releases of these seeds."""
    found = []
    with no_disk():
        for seed in seeds:
            with TemporaryDirectory() as folder:
                release = sound_release(seed, Path(folder), scaled=scaled, protected=protected)
                found += release.accusations(Random(seed))
    return found


@pytest.mark.parametrize("every", [EVERY, *at_night(1)])
@pytest.mark.parametrize("batch", range(DAILY))
def test_no_sound_release_is_accused(batch: int, every: int) -> None:
    found = accusations(range(batch * BATCH, (batch + 1) * BATCH, every))
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize("every", [EVERY, *at_night(1)])
def test_no_sound_release_of_categories_ranks_and_times_is_accused(every: int) -> None:
    found = accusations(range(0, BATCH, every), scaled=True)
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize("every", [EVERY, *at_night(1)])
@pytest.mark.parametrize("scaled", [False, True])
def test_no_sound_release_of_protected_values_is_accused(*, scaled: bool, every: int) -> None:
    found = accusations(range(0, PROTECTED, every), scaled=scaled, protected=True)
    assert not found, "\n\n".join(found)


def test_no_release_that_was_accused_once_is_accused_again() -> None:
    found = accusations(ONCE_ACCUSED) + accusations(ONCE_FAILED, protected=True)
    found += accusations(ONCE_ACCUSED_SCALED, scaled=True)
    found += accusations(ONCE_ACCUSED_PROTECTED, scaled=True, protected=True)
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
