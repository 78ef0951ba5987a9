"""Primitive moves of a cheat. Moves of clusters leave all files in agreement; the others change one file alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

from support.cheat_base import row_text, shown_of
from support.cheat_draft import Draft

__all__ = ["CLUSTER_MOVES", "FILE_MOVES", "Move"]

Move: TypeAlias = Callable[[Draft, Random], None]


def _two(draft: Draft, random: Random) -> tuple[list[int], list[int]]:
    first, second = random.sample(range(len(draft.clusters)), 2)
    return draft.clusters[first], draft.clusters[second]


# ---------------------------------------------------------------- clusters


def drop_clusters(draft: Draft, random: Random) -> None:
    for _ in range(random.choice((1, 5))):
        del draft.clusters[random.randrange(len(draft.clusters))]


def drop_a_record(draft: Draft, random: Random) -> None:
    random.choice(draft.clusters).pop()


def split_a_cluster(draft: Draft, random: Random) -> None:
    place = random.randrange(len(draft.clusters))
    members = draft.clusters[place]
    draft.clusters[place : place + 1] = [members[:1], members[1:]]


def merge_two_clusters(draft: Draft, random: Random) -> None:
    first, second = _two(draft, random)
    first += second
    draft.clusters.remove(second)


def exchange_members(draft: Draft, random: Random) -> None:
    first, second = _two(draft, random)
    first[0], second[0] = second[0], first[0]


def move_a_member(draft: Draft, random: Random) -> None:
    first, second = _two(draft, random)
    second.append(first.pop())


def copy_a_member(draft: Draft, random: Random) -> None:
    first, second = _two(draft, random)
    second.append(first[0])


def replace_by_a_distant_record(draft: Draft, random: Random) -> None:
    first = random.choice(draft.clusters)
    far = max(draft.clusters, key=lambda members: abs(members[0] - first[0]))
    first[-1], far[-1] = far[-1], first[-1]


def shuffle_the_clusters(draft: Draft, random: Random) -> None:
    random.shuffle(draft.clusters)


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


def _edit_a_row(draft: Draft, random: Random, edit: Callable[[str], str]) -> None:
    rows = random.choice(draft.rows)
    place = random.randrange(len(rows))
    rows[place] = edit(rows[place])


def arrival_order(draft: Draft, random: Random) -> None:
    """Put the rows of a cluster, or two rows of a file that is one list, into the order of arrival."""
    rows = random.choice(draft.rows)
    index_of = {record["tag"]: index for index, record in enumerate(draft.base.records) if record is not None}
    rows.sort(key=lambda row: index_of.get((re.search(r"t\d{4}", row) or [""])[0], 0))


def swap_rows(draft: Draft, random: Random) -> None:
    first, second = (random.choice(draft.rows) for _ in range(2))
    one, other = random.randrange(len(first)), random.randrange(len(second))
    first[one], second[other] = second[other], first[one]


def repeat_a_row(draft: Draft, random: Random) -> None:
    rows = random.choice(draft.rows)
    rows.insert(0, rows[0])


def shuffle_the_rows(draft: Draft, random: Random) -> None:
    """Write the clusters in another order than the evidence, or the rows of a file that is one list."""
    random.shuffle(draft.rows if len(draft.rows) > 1 else draft.rows[0])


def remove_a_row(draft: Draft, random: Random) -> None:
    random.choice(draft.rows).pop()


def add_a_row(draft: Draft, random: Random) -> None:
    """Publish a record with the means of a cluster to which it does not belong."""
    members = random.choice(draft.clusters) or draft.clusters[0]
    means = shown_of(draft.base, members, _released(draft))
    stranger = draft.base.record(random.choice(random.choice(draft.clusters)))
    random.choice(draft.rows).append(row_text(draft.base, stranger, means))


def _released(draft: Draft) -> list[int]:
    return [index for members in draft.clusters for index in members]


def raw_value(draft: Draft, random: Random) -> None:
    """Publish a record with its own values."""
    member = random.choice(random.choice(draft.clusters))
    record = draft.base.record(member)
    if draft.base.shape is None:
        own = [str(record["age"]), str(record["income"])]
    else:
        own = shown_of(draft.base, [member], _released(draft))
    _replace_row_of(draft, record["tag"], row_text(draft.base, record, own))


def _replace_row_of(draft: Draft, tag: str, text: str) -> None:
    for rows in draft.rows:
        rows[:] = [text if tag in row else row for row in rows]


def means_of_two(draft: Draft, random: Random) -> None:
    """Publish two clusters with one mean: that of both."""
    first, second = _two(draft, random)
    means = shown_of(draft.base, (*first, *second), _released(draft))
    for index in (*first, *second):
        record = draft.base.record(index)
        _replace_row_of(draft, record["tag"], row_text(draft.base, record, means))


def respell(draft: Draft, random: Random) -> None:
    spellings: Sequence[Callable[[str], str]] = (
        lambda row: re.sub(r"(\d)([,}])", r"\1.0\2", row, count=1),
        lambda row: row.replace(":", ": ", 1) if row.startswith("{") else f" {row}",
        lambda row: row.replace("north", "n\\u006frth").replace("south", '"south"') + ("" if "orth" in row else " "),
        lambda row: row + "\r",
        lambda row: re.sub(r"\b(\d)", r"0\1", row, count=1),
    )
    _edit_a_row(draft, random, random.choice(spellings))


def relabel(draft: Draft, random: Random) -> None:
    """Exchange the tags of two records in the release."""
    one, other = (draft.base.record(random.choice(random.choice(draft.clusters)))["tag"] for _ in range(2))
    table = {one: other, other: one}
    for rows in draft.rows:
        rows[:] = [re.sub(f"{one}|{other}", lambda found: table[found[0]], row) for row in rows]


def off_the_grid(draft: Draft, random: Random) -> None:
    """Add a little to the income of one cluster, or of one row of a file that is one list.

    Where a release has attributes of every scale, one of them gets any other value.
    """
    rows = random.choice(draft.rows)
    if draft.base.shape is not None:
        place, shown = draft.base.shape.another(random, rows)
        count = len(rows) if len(draft.rows) > 1 and random.random() < 0.5 else 1
        rows[:count] = [draft.base.shape.edited(row, place, shown) for row in rows[:count]]
        return
    pattern, more = re.compile(r'("income":|^-?\d+,)(\d+)'), random.choice((1, 500))
    chosen = rows if len(draft.rows) > 1 else rows[:1]
    rows[: len(chosen)] = [pattern.sub(lambda found: f"{found[1]}{int(found[2]) + more}", row) for row in chosen]


# ---------------------------------------------------------------- evidence, summary, references


def forge_evidence(draft: Draft, random: Random) -> None:
    if not draft.evidence:
        return
    place = random.randrange(len(draft.evidence))
    line = json.loads(draft.evidence[place])
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
    draft.evidence[place : place + 1] = [] if forged is None else [json.dumps(forged)]


def forge_summary(draft: Draft, random: Random) -> None:
    if not isinstance(draft.summary, dict):
        return
    changes = (
        {"keep_order": True},
        {"released": draft.summary["released"] + 1},
        {"clusters": draft.summary["clusters"] - 1},
        {"held": 60},
        {"suppressed": {"suppressed": 1000}},
        {"records_in": 10},
    )
    draft.summary |= random.choice(changes)


def forge_references(draft: Draft, random: Random) -> None:
    if draft.quarantine is None:
        return
    member = random.choice(random.choice(draft.clusters))
    choices: Sequence[Callable[[list[str]], object]] = (
        lambda lines: lines.clear(),
        lambda lines: lines.append(draft.reference(member, "suppressed")),
        lambda lines: lines.append(draft.reference(member, "invalid")),
        lambda lines: lines.extend(lines),
    )
    random.choice(choices)(draft.quarantine)


def withhold_a_file(draft: Draft, random: Random) -> None:
    setattr(draft, random.choice(("evidence", "quarantine", "summary")), None)


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
