"""Falsified releases: the judge notices each of the catalogue, and whatever a composed one gains."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.base_releases import BASES, base_of
from support.by_night import at_night
from support.falsification_oracle import gains
from support.falsified_releases import (
    CATALOGUE,
    COMPOSED,
    COMPOSED_OF_SCALES,
    composed,
    composed_falsifications,
    composed_falsifications_of_scales,
    composed_of_scales,
)
from support.judge_table import PAGE, page, row_of
from support.named_falsifications import Falsification, with_records
from support.release_files import Judgement, ReleaseFiles
from support.scaled_bases import SCALED_BASES, scaled_base
from support.value_limits import value_limits_of

BATCH = 100


def label(falsification: Falsification) -> str:
    return f"{falsification.base}: {falsification.name}"


def printed() -> list[str]:
    return [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]


def printed_falsifications() -> list[str]:
    """Return the rows of the catalogue, and after them those of the composed releases."""
    return [row for row in printed() if not row.startswith("| release ")]


@pytest.mark.parametrize("falsification", CATALOGUE, ids=label)
def test_a_release_falsified_by_hand_is_noticed(falsification: Falsification, tmp_path: Path) -> None:
    found = falsification.make().judged(tmp_path)
    assert found.code == falsification.code, found.text
    assert falsification.check in found.checks, found.text
    assert row_of(falsification, found) in printed(), "make judge-table"


@pytest.mark.parametrize("every", [30, *at_night(1)])
def test_composed_releases_of_the_page_are_noticed(every: int) -> None:
    falsifications = [*composed_falsifications(COMPOSED), *composed_falsifications_of_scales(COMPOSED_OF_SCALES)]
    drawn = printed_falsifications()[len(CATALOGUE) :]
    assert len(falsifications) == len(drawn)
    for falsification, printed_row in zip(falsifications[::every], drawn[::every], strict=True):
        with TemporaryDirectory() as folder:
            found = falsification.make().judged(Path(folder))
        assert found.code in {1, 2}, falsification.name
        assert row_of(falsification, found) == printed_row, "make judge-table"


def test_the_table_holds_the_catalogue_and_nothing_else() -> None:
    rows = printed_falsifications()
    named, drawn = rows[: len(CATALOGUE)], rows[len(CATALOGUE) :]
    assert PAGE.read_text("utf-8") == page(named, drawn[:200], drawn[200:])
    assert (COMPOSED, COMPOSED_OF_SCALES, len(drawn)) == (200, 100, 300)
    assert len(named) >= 120
    for falsification, row in zip(CATALOGUE, named, strict=True):
        assert row.startswith(row_of(falsification, Judgement(0, (), "")).removesuffix("0 |  |"))


# ---------------------------------------------------------------- fuzz


VARIED = partial(composed, varied=True)
DISPUTED_ONCE = (1_009_059,)
"""Seeds of composed releases on which the oracle and the judge differed once."""


def batches(first: int) -> list[range]:
    """Return ten thousand seeds."""
    return [range(start, start + BATCH) for start in range(first, first + 100 * BATCH, BATCH)]


@pytest.mark.parametrize(
    ("compose", "seeds"),
    [
        (VARIED, range(10_000, 10_000 + BATCH, 4)),
        (VARIED, DISPUTED_ONCE),
        (composed_of_scales, range(10_000, 10_000 + BATCH, 4)),
        *at_night(*((VARIED, seeds) for seeds in (range(10_000, 10_000 + BATCH), *batches(1_000_000)))),
        *at_night(*((composed_of_scales, seeds) for seeds in (range(10_000, 10_000 + BATCH), *batches(2_000_000)))),
    ],
)
def test_whatever_a_composed_release_gains_is_noticed(
    compose: Callable[[int], tuple[str, ReleaseFiles]], seeds: Sequence[int]
) -> None:
    """Whatever gains something must not pass, and a change without effect must pass."""
    found = []
    for seed in seeds:
        moves, release = compose(seed)
        gained = gains(release)
        with TemporaryDirectory() as folder:
            judged = release.judged(Path(folder))
        if gained and judged.code == 0:
            found.append(f"seed {seed}, {release.base.name}: {moves}: gains {sorted(gained)} and holds")
        if _is_unchanged(release) and judged.code != 0:
            found.append(
                f"seed {seed}, {release.base.name}: {moves}: changes nothing and gets {judged.code}\n{judged.text}"
            )
    assert not found, "\n".join(found)


def _is_unchanged(release: ReleaseFiles) -> bool:
    whole = ReleaseFiles.of(release.base)
    return (
        release.evidence == whole.evidence
        and release.summary in (None, whole.summary)
        and release.quarantine in (None, whole.quarantine)
        and release.released_bytes() == whole.released_bytes()
    )


# ---------------------------------------------------------------- the oracle


def assert_holds(release: ReleaseFiles, folder: Path) -> None:
    assert gains(release) == set()
    found = release.judged(folder)
    assert found.code == 0, found.text


@pytest.mark.parametrize(("name", "limit"), [(name, one) for name in SCALED_BASES for one in value_limits_of(name)])
def test_a_sound_release_of_every_scale_gains_nothing_and_holds(name: str, limit: str, tmp_path: Path) -> None:
    assert_holds(ReleaseFiles.of(scaled_base(name, limit)), tmp_path)


def test_two_clusters_exchanged_within_delta_gain_their_sequence_and_are_noticed(tmp_path: Path) -> None:
    found = []
    for place in range(len(base_of("stream").clusters) - 1):
        release = ReleaseFiles.of(base_of("stream"))
        release.clusters.sort(key=lambda members: (release.base.places[members[0]][0], min(members)))
        release.clusters[place : place + 2] = release.clusters[place + 1], release.clusters[place]
        release.recompose()
        if gains(release) == {"sequence"}:
            found.append(release.judged(tmp_path).code)
    assert len(found) >= 3
    assert set(found) == {1}


def test_clusters_of_a_topic_may_stand_in_any_order(tmp_path: Path) -> None:
    release = ReleaseFiles.of(base_of("topic"))
    before = release.released_bytes()
    release.clusters.reverse()
    release.recompose()
    assert release.released_bytes() != before
    assert_holds(release, tmp_path)


# ---------------------------------------------------------------- changes that gain nothing


def blanks_in_evidence(release: ReleaseFiles) -> None:
    release.evidence = [line.replace(", ", " ,  ") for line in release.evidence or []]


def offsets_in_another_order(release: ReleaseFiles) -> None:
    lines = [json.loads(line) for line in release.evidence or []]
    release.evidence = [json.dumps(line | {"offsets": line["offsets"][::-1]}) for line in lines]


def references_in_another_order(release: ReleaseFiles) -> None:
    release.quarantine = (release.quarantine or [])[::-1]


def nothing(_: ReleaseFiles) -> None:
    pass


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("change", [nothing, blanks_in_evidence, offsets_in_another_order, references_in_another_order])
def test_a_change_that_gains_nothing_is_no_fault(
    name: str, change: Callable[[ReleaseFiles], None], tmp_path: Path
) -> None:
    release = ReleaseFiles.of(base_of(name))
    change(release)
    assert_holds(release, tmp_path)


def test_evidence_may_name_either_of_two_equal_records(tmp_path: Path) -> None:
    base = base_of("stream")
    one, other = base.clusters[4][1], base.clusters[5][1]  # the oldest ones tell the order of decision
    release = ReleaseFiles.of(with_records(base, {other: dict(base.record(one))}))
    release.recompose()
    assert release.judged(tmp_path).code == 0
    exchanged = [[{one: other, other: one}.get(index, index) for index in members] for members in release.clusters]
    release.evidence = [release.evidence_line(number, members) for number, members in enumerate(exchanged)]
    found = release.judged(tmp_path)
    assert found.code == 0, found.text


# ---------------------------------------------------------------- what exit code 0 does not exclude


def test_a_topic_of_which_all_records_are_listed_as_suppressed_holds_and_the_verdict_counts_the_claims(
    tmp_path: Path,
) -> None:
    release = ReleaseFiles.of(base_of("topic"))
    release.clusters = []
    release.recompose()
    found = release.judged(tmp_path)
    assert found.code == 0, found.text
    # The last four may be the fewer than k subjects that the end of each partition leaves.
    assert "120 records, 117 usable, 3 unusable, 0 rows, 0 clusters, 117 suppressed, 113 claimed, 0 held" in found.text
    assert "claimed: 113 records suppressed because of a flush or the size of the offset metadata" in found.text
    assert "(needs at least 53 such decisions)" in found.text
    assert found.early_decisions == 53


def test_the_rest_of_a_quota_window_is_a_claim_only_if_the_original_lacks_its_start(tmp_path: Path) -> None:
    release = ReleaseFiles.of(base_of("topic"))
    release.clusters = sorted(release.clusters, key=min)[:8]
    release.recompose()
    assert release.judged(tmp_path).checks == ("suppressed",)
    release.document |= {"privacy": {"k": 3, "per_subject": {"max": 50, "window": 100_000}}}
    found = release.judged(tmp_path)
    assert found.code == 2, found.text
    # The first partition begins at offset 0, and the second one at offset 1000.
    assert "claimed: 8 records suppressed because of a restart that lost the start of a quota window" in found.text
    assert "undecided: 5 records referenced as suppressed although k subjects were held" in found.text
