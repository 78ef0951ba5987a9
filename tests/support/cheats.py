"""The catalogue of cheats: those made by hand, and those composed at random from primitive moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count, islice
from random import Random

from support.cheat_base import BASES, base_of
from support.cheat_draft import Draft
from support.cheat_moves import CLUSTER_MOVES, FILE_MOVES
from support.cheat_oracle import gains
from support.cheats_of_claims import CHEATS as OF_CLAIMS
from support.cheats_of_clusters import CHEATS as OF_CLUSTERS
from support.cheats_of_decisions import CHEATS as OF_DECISIONS
from support.cheats_of_files import CHEATS as OF_FILES
from support.cheats_of_options import CHEATS as OF_OPTIONS
from support.cheats_of_parquet import CHEATS as OF_PARQUET
from support.cheats_of_scales import CHEATS as OF_SCALES
from support.cheats_of_summaries import CHEATS as OF_SUMMARIES
from support.cheats_of_values import CHEATS as OF_VALUES
from support.named_cheats import Cheat
from support.promises import promises_of
from support.scaled_bases import SCALED_BASES, scaled_base

__all__ = [
    "CATALOGUE",
    "COMPOSED",
    "COMPOSED_OF_SCALES",
    "composed",
    "composed_cheats",
    "composed_cheats_of_scales",
    "composed_of_scales",
]

CATALOGUE: tuple[Cheat, ...] = (
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
"""Composed cheats of the table."""


def composed(seed: int, *, varied: bool = False) -> tuple[str, Draft]:
    """Return the moves of a seed, and the files after them; ``varied``: also draw k, delta and the records."""
    random = Random(seed)
    name = random.choice(BASES)
    k, delta, records = (
        (random.choice((2, 3, 5, 8)), random.choice((10, 30)), random.randrange(3)) if varied else (3, 20, 1)
    )
    draft = Draft.of(base_of(name, k=k, delta=delta, seed=records))
    if gains(draft):  # clusters with equal means, which the oracle takes for one
        draft = Draft.of(base_of(name))
    return _moved(draft, random), draft


def composed_of_scales(seed: int) -> tuple[str, Draft]:
    """Return the same for a release with an attribute of every scale, and confidential values that are protected."""
    random = Random(seed)
    name = random.choice(SCALED_BASES)
    promised = random.choice(promises_of(name))
    draft = Draft.of(scaled_base(name, promised, k=random.choice((2, 3, 5)), seed=random.randrange(3)))
    return _moved(draft, random), draft


def _moved(draft: Draft, random: Random) -> str:
    """Falsify a draft by random moves, and return their names."""
    moves = random.sample(list(CLUSTER_MOVES), random.choice((0, 1, 1, 2)))
    for move in moves:
        CLUSTER_MOVES[move](draft, random)
        draft.clusters = [members for members in draft.clusters if members]
    draft.recompose()
    changes = random.sample(list(FILE_MOVES), random.choice((0, 1, 2)) if moves else random.choice((1, 1, 2, 3)))
    for change in changes:
        FILE_MOVES[change](draft, random)
    return ", ".join([*moves, *changes])


def _composed_cheats(compose: Callable[[int], tuple[str, Draft]]) -> Iterator[Cheat]:
    for seed in count():
        moves, draft = compose(seed)
        found = gains(draft)
        if found:
            name = f"{seed}: {moves} ({', '.join(sorted(found))})"
            yield Cheat(name, draft.base.name, partial(_draft_of, compose, seed), 1, "")


def _draft_of(compose: Callable[[int], tuple[str, Draft]], seed: int) -> Draft:
    return compose(seed)[1]


@cache
def composed_cheats(number: int) -> tuple[Cheat, ...]:
    """Return the first cheats that gain something; the name of each holds seed, moves and gains."""
    return tuple(islice(_composed_cheats(composed), number))


@cache
def composed_cheats_of_scales(number: int) -> tuple[Cheat, ...]:
    """Return the same for releases with an attribute of every scale and promises about confidential values."""
    return tuple(islice(_composed_cheats(composed_of_scales), number))
