"""The catalogue of falsified releases: those made by hand, and those composed at random from primitive moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count, islice
from random import Random

from support.base_releases import BASES, base_of
from support.falsification_moves import CLUSTER_MOVES, FILE_MOVES
from support.falsification_oracle import gains
from support.falsified_claims import FALSIFICATIONS as OF_CLAIMS
from support.falsified_clusters import FALSIFICATIONS as OF_CLUSTERS
from support.falsified_decisions import FALSIFICATIONS as OF_DECISIONS
from support.falsified_files import FALSIFICATIONS as OF_FILES
from support.falsified_options import FALSIFICATIONS as OF_OPTIONS
from support.falsified_parquet import FALSIFICATIONS as OF_PARQUET
from support.falsified_scales import FALSIFICATIONS as OF_SCALES
from support.falsified_summaries import FALSIFICATIONS as OF_SUMMARIES
from support.falsified_values import FALSIFICATIONS as OF_VALUES
from support.named_falsifications import Falsification
from support.release_files import ReleaseFiles
from support.scaled_bases import SCALED_BASES, scaled_base
from support.value_limits import value_limits_of

CATALOGUE: tuple[Falsification, ...] = (
    *OF_CLUSTERS,
    *OF_DECISIONS,
    *OF_OPTIONS,
    *OF_CLAIMS,
    *OF_SUMMARIES,
    *OF_FILES,
    *OF_PARQUET,
    *OF_SCALES,
    *OF_VALUES,
)
COMPOSED, COMPOSED_OF_SCALES = 200, 100
"""Composed releases of the page."""


def composed(seed: int, *, varied: bool = False) -> tuple[str, ReleaseFiles]:
    """Return the moves of a seed, and the files after them; ``varied``: also draw k, delta and the records."""
    random = Random(seed)
    name = random.choice(BASES)
    k, delta, records = (
        (random.choice((2, 3, 5, 8)), random.choice((10, 30)), random.randrange(3)) if varied else (3, 20, 1)
    )
    release = ReleaseFiles.of(base_of(name, k=k, delta=delta, seed=records))
    if gains(release):  # clusters with equal means, which the oracle takes for one
        release = ReleaseFiles.of(base_of(name))
    return _moved(release, random), release


def composed_of_scales(seed: int) -> tuple[str, ReleaseFiles]:
    """Return the same for a release with an attribute of every scale, and confidential values that are protected."""
    random = Random(seed)
    name = random.choice(SCALED_BASES)
    limit = random.choice(value_limits_of(name))
    release = ReleaseFiles.of(scaled_base(name, limit, k=random.choice((2, 3, 5)), seed=random.randrange(3)))
    return _moved(release, random), release


def _moved(release: ReleaseFiles, random: Random) -> str:
    """Falsify a release by random moves, and return their names."""
    moves = random.sample(list(CLUSTER_MOVES), random.choice((0, 1, 1, 2)))
    for move in moves:
        CLUSTER_MOVES[move](release, random)
        release.clusters = [members for members in release.clusters if members]
    release.recompose()
    changes = random.sample(list(FILE_MOVES), random.choice((0, 1, 2)) if moves else random.choice((1, 1, 2, 3)))
    for change in changes:
        FILE_MOVES[change](release, random)
    return ", ".join([*moves, *changes])


def _composed_falsifications(compose: Callable[[int], tuple[str, ReleaseFiles]]) -> Iterator[Falsification]:
    for seed in count():
        moves, release = compose(seed)
        found = gains(release)
        if found:
            name = f"{seed}: {moves} ({', '.join(sorted(found))})"
            yield Falsification(name, release.base.name, "", partial(_release_of, compose, seed))


def _release_of(compose: Callable[[int], tuple[str, ReleaseFiles]], seed: int) -> ReleaseFiles:
    return compose(seed)[1]


@cache
def composed_falsifications(number: int) -> tuple[Falsification, ...]:
    """Return the first falsified releases that gain something; the name of each holds seed, moves and gains."""
    return tuple(islice(_composed_falsifications(composed), number))


@cache
def composed_falsifications_of_scales(number: int) -> tuple[Falsification, ...]:
    """Return the same for releases with an attribute of every scale and limits of confidential values."""
    return tuple(islice(_composed_falsifications(composed_of_scales), number))
