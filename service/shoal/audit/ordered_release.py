"""Rows that leave one by one, in the order of the input: each at the place of a record, none before its turn."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from shoal.audit.check_counter import CheckCounter
from shoal.audit.clusters import RecomputedCluster
from shoal.audit.originals import Originals
from shoal.audit.releases import ReleasedRows, Rows

__all__ = ["judge_turns"]


class _Turn(NamedTuple):
    """The place of a record: its offset, its cluster, its own kept fields."""

    offset: int
    cluster: RecomputedCluster
    kept: str


class _Tallies:
    """What is looked at, over all partitions."""

    def __init__(self, *, reveals: bool) -> None:
        self.extra = CheckCounter("nothing_else", "every row is the recomputed row of a member of a cluster")
        self.missing = CheckCounter(
            "nothing_missing", "every recomputed row of a cluster was released in its turn", "cluster"
        )
        self.turn = CheckCounter("in_turn", "rows stand in the order of the input, each at the place of a record")
        claim = "each place has the fields of its own record" if reveals else "fields are dealt in byte order"
        self.dealt = CheckCounter("own_place" if reveals else "byte_order", claim)


def judge_turns(
    release: ReleasedRows, clusters: list[RecomputedCluster], originals: Originals, *, reveals: bool, complete: bool
) -> list[CheckCounter]:
    """Judge a release in which each record leaves at its own expiry.

    Parameters
    ----------
    release, clusters, originals
        The rows, the clusters as the evidence names them, and the records.
    reveals : bool
        Whether the policy lets each place have the fields of its own record; otherwise those of a cluster are dealt to
        its places in byte order.
    complete : bool
        Whether all clusters must have left as a whole. Otherwise the last ones may have yet to.
    """
    tallies = _Tallies(reveals=reveals)
    turns: dict[int, list[_Turn]] = defaultdict(list)
    for cluster in clusters:
        for index, kept in zip(cluster.members, cluster.kept, strict=True):
            turns[cluster.partition].append(_Turn(int(originals.offsets[index]), cluster, kept))
    unfinished = 0
    for partition in turns.keys() | release.parts.keys():
        rows = release.parts.get(partition, Rows())
        in_order = sorted(turns[partition], key=lambda turn: turn.offset)
        _judge_rows(rows, in_order, tallies, reveals=reveals)
        unfinished += _judge_clusters(rows, in_order, tallies.missing, complete=complete)
    if unfinished and not complete:
        tallies.missing.note = f"{unfinished} clusters have yet to leave as a whole: judge again when they have"
    return [tallies.extra, tallies.missing, tallies.turn, tallies.dealt]


def _judge_rows(rows: Rows, turns: list[_Turn], tallies: _Tallies, *, reveals: bool) -> None:
    """Judge each row at its place: whose it is, and how it follows the row of its cluster before it."""
    left: dict[int, Counter[str]] = {}
    last: dict[int, str] = {}
    for place, line in enumerate(rows.lines):
        if place >= len(turns):
            tallies.extra.expect(False, line)
            continue
        turn = turns[place]
        name = id(turn.cluster)
        kept, text = rows.kept[place], rows.texts[place]
        mine = left.setdefault(name, Counter(turn.cluster.kept))
        tallies.turn.expect(rows.quasi[place] == turn.cluster.quasi, line)
        tallies.extra.expect(rows.quasi[place] == turn.cluster.quasi and mine[kept] > 0, line)
        mine[kept] -= 1
        tallies.dealt.expect(kept == turn.kept if reveals else last.get(name, "") <= text, line)
        last[name] = text


def _judge_clusters(rows: Rows, turns: list[_Turn], missing: CheckCounter, *, complete: bool) -> int:
    """Judge whether clusters left as a whole; return how many did not, and needed not yet."""
    found: dict[int, tuple[RecomputedCluster, Counter[str]]] = {}
    for place, turn in enumerate(turns):
        _, left = found.setdefault(id(turn.cluster), (turn.cluster, Counter(turn.cluster.kept)))
        if place < len(rows):
            left[rows.kept[place]] -= 1
    ends = {id(turn.cluster): place for place, turn in enumerate(turns)}
    unfinished = 0
    for name, (cluster, left) in found.items():
        if ends[name] < len(rows):
            missing.expect(not any(left.values()), cluster.place)
        elif complete:
            missing.expect(False, cluster.place)
        else:
            unfinished += 1
    return unfinished
