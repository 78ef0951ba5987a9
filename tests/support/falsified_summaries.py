"""Falsified releases: a summary of missing records that says little, or contradicts the other files."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from support.base_releases import base_of
from support.named_falsifications import Edit, Falsification, sound
from support.release_files import ReleaseFiles

__all__ = ["FALSIFICATIONS"]


def says(**fields: Any) -> Edit:
    """Return an edit that withholds the references and gives a summary of these fields and the true ``clusters``."""

    def edit(release: ReleaseFiles) -> None:
        release.quarantine = None
        release.summary = {"clusters": len(release.clusters), **fields}

    return edit


def changes(**fields: Any) -> Edit:
    """Return an edit that withholds the references and changes fields of the summary."""

    def edit(release: ReleaseFiles) -> None:
        assert isinstance(release.summary, dict)
        release.quarantine = None
        release.summary |= fields

    return edit


def made(
    base: str, clusters: Callable[[ReleaseFiles], list[list[int]]], edit: Edit, **stream: Any
) -> Callable[[], ReleaseFiles]:
    """Return a maker of a release of these clusters of 200 records, under a policy with options of the stream."""

    def make() -> ReleaseFiles:
        release = sound(base_of(base, 200, people=10**6))
        release.document = deepcopy(release.document)
        release.document["stream"] |= stream
        release.clusters = clusters(release)
        release.recompose()
        edit(release)
        return release

    return make


def usable(release: ReleaseFiles) -> list[int]:
    return [index for index, record in enumerate(release.base.records) if record is not None]


def all_but_every_fourth(release: ReleaseFiles) -> list[list[int]]:
    """Return clusters of three of each four records, per partition."""
    places = release.base.places
    found = []
    for partition in sorted({partition for partition, _ in places}):
        indices = [index for index in usable(release) if places[index][0] == partition]
        found += [indices[start : start + 3] for start in range(0, len(indices) - 3, 4)]
    return found


def every_fourth_block(release: ReleaseFiles) -> list[list[int]]:
    """Return clusters of the first three of each twelve records."""
    indices = usable(release)
    return [indices[start : start + 3] for start in range(0, len(indices) - 3, 12)]


def one_left_over(release: ReleaseFiles) -> list[list[int]]:
    """Return clusters of all records but one, which had to be suppressed: all that were held with it are in a cluster.

    The cluster has an older member, so it was decided before.
    """
    indices = usable(release)
    blocks = [[indices[0], *indices[2:21]]]
    blocks += [indices[start : start + 3] for start in range(21, len(indices) - 5, 3)]
    rest = len(indices) - (21 + 3 * (len(blocks) - 1))
    return [*blocks, indices[-rest:]]


def one_far_cluster(release: ReleaseFiles) -> list[list[int]]:
    """Return one cluster, whose members are 30 records of the partition apart."""
    indices = [index for index in usable(release) if release.base.places[index][0] == 0]
    return [indices[:90:30]]


def second_partition(release: ReleaseFiles) -> list[list[int]]:
    """Return the clusters of one partition of two."""
    return [members for members in release.clusters if release.base.places[members[0]][0] == 1]


LIMITED = {"max_delay_s": 5}

FALSIFICATIONS: list[Falsification] = [
    Falsification(
        "members 30 apart, others dropped, summary counts clusters",
        "topic",
        made("topic", one_far_cluster, says()),
        2,
        "undecided",
    ),
    Falsification(
        "members 30 apart, others dropped, summary says suppressed",
        "topic",
        made(
            "topic",
            one_far_cluster,
            says(records_in=200, released=3, suppressed=194, quarantined=3, held=0),
        ),
        2,
        "undecided",
    ),
    Falsification(
        "no row of a partition, summary counts clusters",
        "topic",
        made("topic", second_partition, says()),
        2,
        "undecided",
    ),
    Falsification(
        "every fourth message dropped, summary counts clusters",
        "topic",
        made("topic", all_but_every_fourth, says()),
        2,
        "undecided",
    ),
    Falsification(
        "nothing released, summary says so",
        "topic",
        made("topic", lambda _: [], says(released=0)),
        2,
        "undecided",
    ),
    Falsification(
        "a time limit, three of four records dropped, summary counts clusters",
        "stream",
        made("stream", every_fourth_block, says(), **LIMITED),
        2,
        "undecided",
    ),
    Falsification(
        "a time limit, every fourth record dropped, summary counts clusters",
        "stream",
        made("stream", all_but_every_fourth, says(), **LIMITED),
        2,
        "undecided",
    ),
    Falsification(
        "a time limit, every fourth record dropped, summary counts fewer as suppressed",
        "stream",
        made(
            "stream",
            all_but_every_fourth,
            changes(suppressed={"suppressed": 9}, quarantined={"invalid": 43}),
            **LIMITED,
        ),
        1,
        "complete",
    ),
    Falsification(
        "records that had to be suppressed counted as quarantined",
        "stream",
        made("stream", one_left_over, changes(suppressed={}, quarantined={"invalid": 4})),
        1,
        "accounts",
    ),
    Falsification(
        "a time limit, every fourth record dropped, summary counts them as quarantined",
        "stream",
        made("stream", all_but_every_fourth, changes(suppressed={}, quarantined={"invalid": 53}), **LIMITED),
        1,
        "accounts",
    ),
    Falsification(
        "a suppressed record counted as a sum of 5 and -4",
        "stream",
        made("stream", one_left_over, changes(suppressed={"a": 5, "b": -4})),
        1,
        "accounts",
    ),
]
