"""The judge accuses no sound release: random policies, originals and files, made by Shoal itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from support.by_night import at_night
from support.sound_releases import no_disk, sound_release

BATCH = 100
EVERY = 4
"""By day, of releases with small seeds every fourth is judged."""
ONCE_ACCUSED = (104, 133, 3070, 3206, 3413, 7014, 7636, 1_004_359, 3_000_873)
"""Seeds whose releases a judge accused once."""
ONCE_FAILED = (53, 105, 116)
"""Seeds of protected values whose releases a judge accused, or a pipeline refused to make."""

PLAIN, SCALED = {"scaled": False, "protected": False}, {"scaled": True, "protected": False}
PROTECTED, BOTH = {"scaled": False, "protected": True}, {"scaled": True, "protected": True}


def seeds_of(kind: dict[str, bool], first: int, batches: int, every: int = 1) -> list[tuple[dict[str, bool], range]]:
    return [(kind, range(start, start + BATCH, every)) for start in range(first, first + batches * BATCH, BATCH)]


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        *seeds_of(PLAIN, 0, 3, EVERY),
        *seeds_of(SCALED, 0, 1, EVERY),
        *((kind, range(0, 30, EVERY)) for kind in (PROTECTED, BOTH)),
        *((PLAIN, ONCE_ACCUSED), (PROTECTED, ONCE_FAILED), (SCALED, (2_002_464,)), (BOTH, (3_000_231,))),
        *at_night(
            *seeds_of(PLAIN, 0, 3),
            *seeds_of(PLAIN, 1_000_000, 100),
            *seeds_of(SCALED, 0, 1),
            *seeds_of(SCALED, 2_000_000, 25),
            *((kind, range(30)) for kind in (PROTECTED, BOTH)),
            *seeds_of(PROTECTED, 3_000_000, 12),
            *seeds_of(BOTH, 3_001_200, 13),
        ),
    ],
)
def test_no_sound_release_is_accused(kind: dict[str, bool], seeds: Sequence[int]) -> None:
    found = []
    with no_disk():
        for seed in seeds:
            with TemporaryDirectory() as folder:
                found += sound_release(seed, Path(folder), **kind).accusations(Random(seed))
    assert not found, "\n\n".join(found)
