"""Falsified releases: a summary of missing records that says little, or contradicts the other files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.base_releases import base_of
from support.named_falsifications import (
    Edit,
    Falsification,
    editor,
    far_apart,
    limited,
    maker,
    makers_of,
    sound,
    summary_says,
    usable_of,
)
from support.release_files import ReleaseFiles


@editor
def says(release: ReleaseFiles, /, **fields: Any) -> None:
    """Withhold the references, and give a summary of these fields and the true ``clusters``."""
    release.quarantine = None
    release.summary = {"clusters": len(release.clusters), **fields}


@maker
def made(base: str, clusters: Callable[[ReleaseFiles], list[list[int]]], edit: Edit, **stream: Any) -> ReleaseFiles:
    """Return a release of these clusters of 200 records, under a policy with options of the stream."""
    release = limited(sound(base_of(base, 200, people=10**6)), stream=stream)
    release.clusters = clusters(release)
    release.recompose()
    edit(release)
    return release


def all_but_every_fourth(release: ReleaseFiles) -> list[list[int]]:
    """Return clusters of three of each four records, per partition."""
    found = []
    for partition in sorted({partition for partition, _ in release.base.places}):
        indices = usable_of(release.base, partition)
        found += [indices[start : start + 3] for start in range(0, len(indices) - 3, 4)]
    return found


def every_fourth_block(release: ReleaseFiles) -> list[list[int]]:
    """Return clusters of the first three of each twelve records."""
    indices = usable_of(release.base)
    return [indices[start : start + 3] for start in range(0, len(indices) - 3, 12)]


def one_left_over(release: ReleaseFiles) -> list[list[int]]:
    """Return clusters of all records but one, which had to be suppressed: all that were held with it are in a cluster.

    The cluster has an older member, so it was decided before.
    """
    indices = usable_of(release.base)
    blocks = [[indices[0], *indices[2:21]]]
    blocks += [indices[start : start + 3] for start in range(21, len(indices) - 5, 3)]
    rest = len(indices) - (21 + 3 * (len(blocks) - 1))
    return [*blocks, indices[-rest:]]


def second_partition(release: ReleaseFiles) -> list[list[int]]:
    """Return the clusters of one partition of two."""
    return [members for members in release.clusters if release.base.places[members[0]][0] == 1]


def one_far_cluster(release: ReleaseFiles) -> list[list[int]]:
    """Return one cluster, whose members are 30 records of the partition apart."""
    return far_apart(release.base, 3, 30, count=1)


LIMITED = {"max_delay_s": 5}

FALSIFICATIONS: list[Falsification] = [
    *makers_of(
        "topic",
        (
            "members 30 apart, others dropped, summary counts clusters",
            "undecided",
            made("topic", one_far_cluster, says()),
        ),
        (
            "members 30 apart, others dropped, summary says suppressed",
            "undecided",
            made("topic", one_far_cluster, says(records_in=200, released=3, suppressed=194, quarantined=3, held=0)),
        ),
        ("no row of a partition, summary counts clusters", "undecided", made("topic", second_partition, says())),
        (
            "every fourth message dropped, summary counts clusters",
            "undecided",
            made("topic", all_but_every_fourth, says()),
        ),
        ("nothing released, summary says so", "undecided", made("topic", lambda _: [], says(released=0))),
    ),
    *makers_of(
        "stream",
        (
            "a time limit, three of four records dropped, summary counts clusters",
            "undecided",
            made("stream", every_fourth_block, says(), **LIMITED),
        ),
        (
            "a time limit, every fourth record dropped, summary counts clusters",
            "undecided",
            made("stream", all_but_every_fourth, says(), **LIMITED),
        ),
        (
            "a time limit, every fourth record dropped, summary counts fewer as suppressed",
            "complete",
            made(
                "stream",
                all_but_every_fourth,
                summary_says(suppressed={"suppressed": 9}, quarantined={"invalid": 43}),
                **LIMITED,
            ),
        ),
        (
            "records that had to be suppressed counted as quarantined",
            "accounts",
            made("stream", one_left_over, summary_says(suppressed={}, quarantined={"invalid": 4})),
        ),
        (
            "a time limit, every fourth record dropped, summary counts them as quarantined",
            "accounts",
            made("stream", all_but_every_fourth, summary_says(suppressed={}, quarantined={"invalid": 53}), **LIMITED),
        ),
        (
            "a suppressed record counted as a sum of 5 and -4",
            "accounts",
            made("stream", one_left_over, summary_says(suppressed={"a": 5, "b": -4})),
        ),
    ),
]
