"""Falsified releases: the judge notices each cheat of the catalogue, and whatever a composed cheat gains."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.by_night import at_night
from support.cheat_base import BASES, base_of
from support.cheat_draft import Draft, Judgement
from support.cheat_oracle import gains
from support.cheats import (
    CATALOGUE,
    COMPOSED,
    COMPOSED_OF_SCALES,
    composed,
    composed_cheats,
    composed_cheats_of_scales,
    composed_of_scales,
)
from support.judge_table import PAGE, page, row_of
from support.named_cheats import Cheat, with_records
from support.promises import promises_of
from support.scaled_bases import SCALED_BASES, scaled_base

pytestmark = pytest.mark.privacy

BATCH = 100
DISPUTED_ONCE = (1_009_059,)
"""Seeds of composed cheats on which the oracle and the judge differed once."""
FUZZED, FUZZED_AT_NIGHT = 1, 100
"""Batches of composed cheats."""


def label(cheat: Cheat) -> str:
    return f"{cheat.base}: {cheat.name}"


def printed() -> list[str]:
    return [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]


def printed_cheats() -> list[str]:
    """Return the rows of the catalogue, and after them those of the composed cheats."""
    return [row for row in printed() if not row.startswith("| release ")]


@pytest.mark.parametrize("cheat", CATALOGUE, ids=label)
def test_a_cheat_made_by_hand_is_noticed(cheat: Cheat, tmp_path: Path) -> None:
    found = cheat.make().judged(tmp_path)
    assert found.code == cheat.code, found.text
    assert cheat.check in found.checks, found.text
    assert row_of(cheat, found) in printed(), "make judge-table"


@pytest.mark.parametrize("every", [30, *at_night(1)])
def test_composed_cheats_of_the_table_are_noticed(every: int) -> None:
    cheats = [*composed_cheats(COMPOSED), *composed_cheats_of_scales(COMPOSED_OF_SCALES)]
    drawn = printed_cheats()[len(CATALOGUE) :]
    assert len(cheats) == len(drawn)
    for cheat, printed_row in zip(cheats[::every], drawn[::every], strict=True):
        with TemporaryDirectory() as folder:
            found = cheat.make().judged(Path(folder))
        assert found.code in {1, 2}, cheat.name
        assert row_of(cheat, found) == printed_row, "make judge-table"


def test_the_table_holds_the_catalogue_and_nothing_else() -> None:
    rows = printed_cheats()
    named, drawn = rows[: len(CATALOGUE)], rows[len(CATALOGUE) :]
    assert PAGE.read_text("utf-8") == page(named, drawn[:200], drawn[200:])
    assert (COMPOSED, COMPOSED_OF_SCALES, len(drawn)) == (200, 100, 300)
    assert len(named) >= 120
    for cheat, row in zip(CATALOGUE, named, strict=True):
        assert row.startswith(row_of(cheat, Judgement(0, (), "")).removesuffix("0 |  |"))


def test_names_of_cheats_are_unique() -> None:
    labels = [label(cheat) for cheat in CATALOGUE]
    assert len(set(labels)) == len(labels)


# ---------------------------------------------------------------- fuzz


VARIED = partial(composed, varied=True)


def unnoticed(seeds: Iterable[int], compose: Callable[[int], tuple[str, Draft]] = VARIED) -> list[str]:
    """Return the cheats that gain something and pass, and the changes without effect that do not pass."""
    found = []
    for seed in seeds:
        moves, draft = compose(seed)
        gained = gains(draft)
        with TemporaryDirectory() as folder:
            judged = draft.judged(Path(folder))
        if gained and judged.code == 0:
            found.append(f"seed {seed}, {draft.base.name}: {moves}: gains {sorted(gained)} and holds")
        if _is_unchanged(draft) and judged.code != 0:
            found.append(
                f"seed {seed}, {draft.base.name}: {moves}: changes nothing and gets {judged.code}\n{judged.text}"
            )
    return found


def _is_unchanged(draft: Draft) -> bool:
    whole = Draft.of(draft.base)
    return (
        draft.evidence == whole.evidence
        and draft.summary in (None, whole.summary)
        and draft.quarantine in (None, whole.quarantine)
        and draft.released_bytes() == whole.released_bytes()
    )


@pytest.mark.parametrize("every", [4, *at_night(1)])
@pytest.mark.parametrize("batch", range(FUZZED))
def test_whatever_a_composed_cheat_gains_is_noticed(batch: int, every: int) -> None:
    first = 10_000 + batch * BATCH
    found = unnoticed(range(first, first + BATCH, every))
    assert not found, "\n".join(found)


def test_cheats_that_were_disputed_once_are_not_disputed_again() -> None:
    found = unnoticed(DISPUTED_ONCE)
    assert not found, "\n".join(found)


@pytest.mark.nightly
@pytest.mark.parametrize("batch", range(FUZZED_AT_NIGHT))
def test_whatever_ten_thousand_composed_cheats_gain_is_noticed(batch: int) -> None:
    first = 1_000_000 + batch * BATCH
    found = unnoticed(range(first, first + BATCH))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("every", [4, *at_night(1)])
@pytest.mark.parametrize("batch", range(FUZZED))
def test_whatever_a_composed_cheat_of_scales_gains_is_noticed(batch: int, every: int) -> None:
    first = 10_000 + batch * BATCH
    found = unnoticed(range(first, first + BATCH, every), composed_of_scales)
    assert not found, "\n".join(found)


@pytest.mark.nightly
@pytest.mark.parametrize("batch", range(FUZZED_AT_NIGHT))
def test_whatever_ten_thousand_composed_cheats_of_scales_gain_is_noticed(batch: int) -> None:
    first = 2_000_000 + batch * BATCH
    found = unnoticed(range(first, first + BATCH), composed_of_scales)
    assert not found, "\n".join(found)


# ---------------------------------------------------------------- the oracle


@pytest.mark.parametrize(("name", "promised"), [(name, one) for name in SCALED_BASES for one in promises_of(name)])
def test_a_sound_release_of_every_scale_gains_nothing_and_holds(name: str, promised: str, tmp_path: Path) -> None:
    draft = Draft.of(scaled_base(name, promised))
    assert gains(draft) == set()
    found = draft.judged(tmp_path)
    assert found.code == 0, found.text


@pytest.mark.parametrize("name", BASES)
def test_a_sound_release_gains_nothing_and_holds(name: str, tmp_path: Path) -> None:
    draft = Draft.of(base_of(name))
    assert gains(draft) == set()
    found = draft.judged(tmp_path)
    assert found.code == 0, found.text


def test_clusters_of_a_topic_in_an_order_that_no_decisions_in_time_explain_gain_their_sequence() -> None:
    drafts = {cheat.name: cheat.make() for cheat in CATALOGUE if (cheat.base, cheat.check) == ("topic", "sequence")}
    assert {name: gains(draft) for name, draft in drafts.items() if isinstance(draft, Draft)} == {
        "the first cluster published last": {"sequence"},
        "the last cluster published first": {"sequence"},
        "the clusters in the reverse order": {"sequence"},
        "two clusters ten apart exchanged": {"sequence"},
    }


@pytest.mark.parametrize("name", ["stream", "topic"])
def test_two_clusters_exchanged_within_delta_gain_their_sequence_and_are_noticed(name: str, tmp_path: Path) -> None:
    found = []
    for place in range(len(base_of(name).clusters) - 1):
        draft = Draft.of(base_of(name))
        draft.clusters.sort(key=lambda members: (draft.base.places[members[0]][0], min(members)))
        draft.clusters[place : place + 2] = draft.clusters[place + 1], draft.clusters[place]
        draft.recompose()
        if gains(draft) == {"sequence"}:
            found.append(draft.judged(tmp_path).code)
    assert len(found) >= 3
    assert set(found) == {1}


def test_clusters_of_a_topic_may_stand_in_any_order_that_decisions_in_time_explain(tmp_path: Path) -> None:
    draft = Draft.of(base_of("topic"))
    before = draft.released_bytes()
    draft.clusters.sort(key=min)  # each in a transaction of its own
    draft.recompose()
    assert draft.released_bytes() != before
    assert gains(draft) == set()
    found = draft.judged(tmp_path)
    assert found.code == 0, found.text


# ---------------------------------------------------------------- changes that gain nothing


def blanks_in_evidence(draft: Draft) -> None:
    draft.evidence = [line.replace(", ", " ,  ") for line in draft.evidence or []]


def offsets_in_another_order(draft: Draft) -> None:
    lines = [json.loads(line) for line in draft.evidence or []]
    draft.evidence = [json.dumps(line | {"offsets": line["offsets"][::-1]}) for line in lines]


def references_in_another_order(draft: Draft) -> None:
    draft.quarantine = (draft.quarantine or [])[::-1]


HARMLESS = (blanks_in_evidence, offsets_in_another_order, references_in_another_order)


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("change", HARMLESS)
def test_a_change_that_gains_nothing_is_no_fault(name: str, change: Callable[[Draft], None], tmp_path: Path) -> None:
    draft = Draft.of(base_of(name))
    change(draft)
    assert gains(draft) == set()
    found = draft.judged(tmp_path)
    assert found.code == 0, found.text


def test_evidence_may_name_either_of_two_equal_records(tmp_path: Path) -> None:
    base = base_of("stream")
    one, other = base.clusters[4][1], base.clusters[5][1]  # the oldest ones tell the order of decision
    draft = Draft.of(with_records(base, {other: dict(base.record(one))}))
    draft.recompose()
    assert draft.judged(tmp_path).code == 0
    exchanged = [[{one: other, other: one}.get(index, index) for index in members] for members in draft.clusters]
    draft.evidence = [draft.evidence_line(number, members) for number, members in enumerate(exchanged)]
    found = draft.judged(tmp_path)
    assert found.code == 0, found.text


# ---------------------------------------------------------------- what exit code 0 does not exclude


def test_a_topic_of_which_all_records_are_listed_as_suppressed_holds_and_the_verdict_counts_the_claims(
    tmp_path: Path,
) -> None:
    draft = Draft.of(base_of("topic"))
    draft.clusters = []
    draft.recompose()
    found = draft.judged(tmp_path)
    assert found.code == 0, found.text
    # The last four may be the fewer than k subjects that the end of each partition leaves.
    assert "120 records, 117 usable, 3 unusable, 0 rows, 0 clusters, 117 suppressed, 113 claimed, 0 held" in found.text
    assert "claimed: 113 records suppressed because of a flush or the size of the offset metadata" in found.text
    assert "(needs at least 53 such decisions)" in found.text
    assert found.early_decisions == 53


def test_the_rest_of_a_quota_window_is_a_claim_only_if_the_original_lacks_its_start(tmp_path: Path) -> None:
    draft = Draft.of(base_of("topic"))
    draft.clusters = sorted(draft.clusters, key=min)[:8]
    draft.recompose()
    assert draft.judged(tmp_path).checks == ("suppressed",)
    draft.document |= {"privacy": {"k": 3, "per_subject": {"max": 50, "window": 100_000}}}
    found = draft.judged(tmp_path)
    assert found.code == 2, found.text
    # The first partition begins at offset 0, and the second one at offset 1000.
    assert "claimed: 8 records suppressed because of a restart that lost the start of a quota window" in found.text
    assert "undecided: 5 records referenced as suppressed although k subjects were held" in found.text
