"""Primitive moves that falsify a release. Those of clusters leave all files in agreement; others change one file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

from support.base_releases import row_text, shown_of
from support.release_files import ReleaseFiles

Move: TypeAlias = Callable[[ReleaseFiles, Random], None]


def _two(release: ReleaseFiles, random: Random) -> tuple[list[int], list[int]]:
    first, second = random.sample(range(len(release.clusters)), 2)
    return release.clusters[first], release.clusters[second]


# ---------------------------------------------------------------- clusters


def drop_clusters(release: ReleaseFiles, random: Random) -> None:
    for _ in range(random.choice((1, 5))):
        del release.clusters[random.randrange(len(release.clusters))]


def drop_a_record(release: ReleaseFiles, random: Random) -> None:
    random.choice(release.clusters).pop()


def split_a_cluster(release: ReleaseFiles, random: Random) -> None:
    place = random.randrange(len(release.clusters))
    members = release.clusters[place]
    release.clusters[place : place + 1] = [members[:1], members[1:]]


def merge_two_clusters(release: ReleaseFiles, random: Random) -> None:
    first, second = _two(release, random)
    first += second
    release.clusters.remove(second)


def exchange_members(release: ReleaseFiles, random: Random) -> None:
    first, second = _two(release, random)
    first[0], second[0] = second[0], first[0]


def move_a_member(release: ReleaseFiles, random: Random) -> None:
    first, second = _two(release, random)
    second.append(first.pop())


def copy_a_member(release: ReleaseFiles, random: Random) -> None:
    first, second = _two(release, random)
    second.append(first[0])


def replace_by_a_distant_record(release: ReleaseFiles, random: Random) -> None:
    first = random.choice(release.clusters)
    far = max(release.clusters, key=lambda members: abs(members[0] - first[0]))
    first[-1], far[-1] = far[-1], first[-1]


def shuffle_the_clusters(release: ReleaseFiles, random: Random) -> None:
    random.shuffle(release.clusters)


CLUSTER_MOVES: dict[str, Move] = {
    "drop": drop_clusters,
    "drop one": drop_a_record,
    "split": split_a_cluster,
    "merge": merge_two_clusters,
    "exchange": exchange_members,
    "move": move_a_member,
    "copy": copy_a_member,
    "replace": replace_by_a_distant_record,
    "shuffle": shuffle_the_clusters,
}


# ---------------------------------------------------------------- rows


def _edit_a_row(release: ReleaseFiles, random: Random, edit: Callable[[str], str]) -> None:
    rows = random.choice(release.rows)
    place = random.randrange(len(rows))
    rows[place] = edit(rows[place])


def arrival_order(release: ReleaseFiles, random: Random) -> None:
    """Put the rows of a cluster, or two rows of a file that is one list, into the order of arrival."""
    rows = random.choice(release.rows)
    index_of = {record["tag"]: index for index, record in enumerate(release.base.records) if record is not None}
    rows.sort(key=lambda row: index_of.get((re.search(r"t\d{4}", row) or [""])[0], 0))


def swap_rows(release: ReleaseFiles, random: Random) -> None:
    first, second = (random.choice(release.rows) for _ in range(2))
    one, other = random.randrange(len(first)), random.randrange(len(second))
    first[one], second[other] = second[other], first[one]


def repeat_a_row(release: ReleaseFiles, random: Random) -> None:
    rows = random.choice(release.rows)
    rows.insert(0, rows[0])


def shuffle_the_rows(release: ReleaseFiles, random: Random) -> None:
    """Write the clusters in another order than the evidence, or the rows of a file that is one list."""
    random.shuffle(release.rows if len(release.rows) > 1 else release.rows[0])


def remove_a_row(release: ReleaseFiles, random: Random) -> None:
    random.choice(release.rows).pop()


def add_a_row(release: ReleaseFiles, random: Random) -> None:
    """Publish a record with the means of a cluster to which it does not belong."""
    members = random.choice(release.clusters) or release.clusters[0]
    means = shown_of(release.base, members, _released(release))
    stranger = release.base.record(random.choice(random.choice(release.clusters)))
    random.choice(release.rows).append(row_text(release.base, stranger, means))


def _released(release: ReleaseFiles) -> list[int]:
    return [index for members in release.clusters for index in members]


def raw_value(release: ReleaseFiles, random: Random) -> None:
    """Publish a record with its own values."""
    member = random.choice(random.choice(release.clusters))
    record = release.base.record(member)
    if release.base.shape is None:
        own = [str(record["age"]), str(record["income"])]
    else:
        own = shown_of(release.base, [member], _released(release))
    _replace_row_of(release, record["tag"], row_text(release.base, record, own))


def _replace_row_of(release: ReleaseFiles, tag: str, text: str) -> None:
    for rows in release.rows:
        rows[:] = [text if tag in row else row for row in rows]


def means_of_two(release: ReleaseFiles, random: Random) -> None:
    """Publish two clusters with one mean: that of both."""
    first, second = _two(release, random)
    means = shown_of(release.base, (*first, *second), _released(release))
    for index in (*first, *second):
        record = release.base.record(index)
        _replace_row_of(release, record["tag"], row_text(release.base, record, means))


def respell(release: ReleaseFiles, random: Random) -> None:
    spellings: Sequence[Callable[[str], str]] = (
        lambda row: re.sub(r"(\d)([,}])", r"\1.0\2", row, count=1),
        lambda row: row.replace(":", ": ", 1) if row.startswith("{") else f" {row}",
        lambda row: row.replace("north", "n\\u006frth").replace("south", '"south"') + ("" if "orth" in row else " "),
        lambda row: row + "\r",
        lambda row: re.sub(r"\b(\d)", r"0\1", row, count=1),
    )
    _edit_a_row(release, random, random.choice(spellings))


def relabel(release: ReleaseFiles, random: Random) -> None:
    """Exchange the tags of two records in the release."""
    one, other = (release.base.record(random.choice(random.choice(release.clusters)))["tag"] for _ in range(2))
    table = {one: other, other: one}
    for rows in release.rows:
        rows[:] = [re.sub(f"{one}|{other}", lambda found: table[found[0]], row) for row in rows]


def off_the_grid(release: ReleaseFiles, random: Random) -> None:
    """Add a little to the income of one cluster, or of one row of a file that is one list.

    Where a release has attributes of every scale, one of them gets any other value.
    """
    rows = random.choice(release.rows)
    if release.base.shape is not None:
        place, shown = release.base.shape.another(random, rows)
        count = len(rows) if len(release.rows) > 1 and random.random() < 0.5 else 1
        rows[:count] = [release.base.shape.edited(row, place, shown) for row in rows[:count]]
        return
    pattern, more = re.compile(r'("income":|^-?\d+,)(\d+)'), random.choice((1, 500))
    chosen = rows if len(release.rows) > 1 else rows[:1]
    rows[: len(chosen)] = [pattern.sub(lambda found: f"{found[1]}{int(found[2]) + more}", row) for row in chosen]


# ---------------------------------------------------------------- evidence, summary, references


def forge_evidence(release: ReleaseFiles, random: Random) -> None:
    if not release.evidence:
        return
    place = random.randrange(len(release.evidence))
    line = json.loads(release.evidence[place])
    offsets = line["offsets"] or [0]
    forged = random.choice(
        (
            {**line, "offsets": offsets[1:]},
            {**line, "offsets": [*offsets, offsets[0]]},
            {**line, "offsets": [offset + 1 for offset in offsets]},
            {**line, "partition": line["partition"] + 1},
            {**line, "offsets": [-1, *offsets]},
            {**line, "offsets": [float(offset) for offset in offsets]},
            {**line, "offsets": [str(offset) for offset in offsets]},
            None,
        )
    )
    release.evidence[place : place + 1] = [] if forged is None else [json.dumps(forged)]


def forge_summary(release: ReleaseFiles, random: Random) -> None:
    if not isinstance(release.summary, dict):
        return
    changes = (
        {"keep_order": True},
        {"released": release.summary["released"] + 1},
        {"clusters": release.summary["clusters"] - 1},
        {"held": 60},
        {"suppressed": {"suppressed": 1000}},
        {"records_in": 10},
    )
    release.summary |= random.choice(changes)


def forge_references(release: ReleaseFiles, random: Random) -> None:
    if release.quarantine is None:
        return
    member = random.choice(random.choice(release.clusters))
    choices: Sequence[Callable[[list[str]], object]] = (
        lambda lines: lines.clear(),
        lambda lines: lines.append(release.reference(member, "suppressed")),
        lambda lines: lines.append(release.reference(member, "invalid")),
        lambda lines: lines.extend(lines),
    )
    random.choice(choices)(release.quarantine)


def withhold_a_file(release: ReleaseFiles, random: Random) -> None:
    setattr(release, random.choice(("evidence", "quarantine", "summary")), None)


FILE_MOVES: dict[str, Move] = {
    "order by arrival": arrival_order,
    "swap rows": swap_rows,
    "repeat a row": repeat_a_row,
    "shuffle the rows": shuffle_the_rows,
    "remove a row": remove_a_row,
    "add a row": add_a_row,
    "publish a raw value": raw_value,
    "mean of two clusters": means_of_two,
    "re-spell": respell,
    "relabel": relabel,
    "off the grid": off_the_grid,
    "forge evidence": forge_evidence,
    "forge summary": forge_summary,
    "forge references": forge_references,
    "withhold a file": withhold_a_file,
}
