"""The judge accuses no sound release: random policies, originals and files, made by Shoal itself."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from support.sound_releases import no_disk, sound_release

pytestmark = pytest.mark.privacy

BATCH = 100
DAILY, NIGHTLY = 3, 100
"""Batches of releases in each test run, and at night."""


def accusations(first: int) -> list[str]:
    """Return what the judge holds against the releases of a batch of seeds."""
    found = []
    with no_disk():
        for seed in range(first, first + BATCH):
            with TemporaryDirectory() as folder:
                found += sound_release(seed, Path(folder)).accusations(Random(seed))
    return found


@pytest.mark.parametrize("batch", range(DAILY))
def test_no_sound_release_is_accused(batch: int) -> None:
    found = accusations(batch * BATCH)
    assert not found, "\n\n".join(found)


@pytest.mark.nightly
@pytest.mark.parametrize("batch", range(NIGHTLY))
def test_ten_thousand_sound_releases_are_not_accused(batch: int) -> None:
    found = accusations(1_000_000 + batch * BATCH)
    assert not found, "\n\n".join(found)
