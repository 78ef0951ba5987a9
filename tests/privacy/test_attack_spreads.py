"""Learned spreads: records that would spoil them, and what the commits that carry them show."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from shoal.arrays import BoolVector, Float64Matrix, Float64Vector, Int64Vector
from shoal.formats import Block, JsonEncoder
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.streams import BlockDecisions, DecidedCluster, PartitionPipeline
from support.attack_results import RULES, impossible, measured
from support.attacking import adult, quasi
from support.by_night import at_night

K, DELTA = 10, 100
EXTREME = 2.0**53
"""The largest value that a stream takes where no bounds are said."""
INCOME: dict[str, dict[str, Any]] = {
    "without bounds": {"role": "quasi_identifier", "resolution": 0.5},
    "with bounds ten times too wide": {"role": "quasi_identifier", "resolution": 0.5, "bounds": [0, 1000]},
}
"""Incomes lie evenly between 0 and 100."""
FREE, LOOSE = INCOME
SENDER = "sends records of its own"


def flow_of(rule: str, income: str, *, subject: str = "every_record", scaling: str = "spreads") -> PartitionPipeline:
    document: dict[str, Any] = {
        "attributes": {"age": quasi(0, 1, resolution=0), "income": INCOME[income]},
        "subject": "every_record",
        "privacy": {"k": K},
        "stream": {"delta": DELTA, "rule": rule},
        "steering": {"scaling": scaling},
    }
    if subject != "every_record":
        document["attributes"][subject] = {"role": "identifier", "subject": True}
        del document["subject"]
    policy = Policy.from_document(Document.model_validate(document))
    return PartitionPipeline(policy, JsonEncoder(policy))


def push(
    flow: PartitionPipeline, values: Float64Matrix, offsets: Int64Vector, people: Int64Vector | None = None
) -> BlockDecisions:
    """Take records; each is a person of its own, if no people are given."""
    block = Block(values, offsets if people is None else people, [b""] * len(offsets), offsets, [], 0)
    return flow.push(block, np.column_stack([np.zeros_like(offsets), offsets]))


def drawn(count: int, seed: int = 1) -> Float64Matrix:
    """Ages from 0 to 1 and incomes from 0 to 100, evenly."""
    values: Float64Matrix = np.random.default_rng(seed).random((count, 2)) * [1.0, 100.0]
    return values


class WidthHistory(NamedTuple):
    """The learned width and variance of income after each hundred records, and all clusters."""

    widths: Float64Vector
    variances: Float64Vector
    clusters: list[DecidedCluster]


def course_of(rule: str, income: str, values: Float64Matrix) -> WidthHistory:
    flow, widths, variances, clusters = flow_of(rule, income), list[float](), list[float](), list[DecidedCluster]()
    for start, end in pairwise(range(0, len(values) + 1, 100)):
        clusters += push(flow, values[start:end], np.arange(start, end)).clusters
        spreads = flow.adaptive_state.spreads
        assert spreads is not None
        widths.append(float(spreads.widths[1]))
        variances.append(float(spreads.variances[1]))
    return WidthHistory(np.array(widths), np.array(variances), clusters + flow.flush().clusters)


# ---------------------------------------------------------------- extremes among the records

COUNT, FIRST, LAST, SETTLED = 70_000, 5000, 50_000, 15_000
"""Records, and those between which the attacker sends; a width of a thousand clusters later is in balance with him."""


@cache
def quiet(rule: str, income: str) -> WidthHistory:
    return course_of(rule, income, drawn(COUNT))


def attacked(rule: str, income: str, share: float, sent: Float64Vector) -> tuple[WidthHistory, float]:
    """The course where a share of the records has the values sent; the attacker's share of the published values."""
    values = drawn(COUNT)
    hit: BoolVector = np.random.default_rng(7).random(COUNT) < share
    hit[:FIRST] = hit[LAST:] = False
    values[hit, 1] = np.resize(sent, int(hit.sum()))
    course = course_of(rule, income, values)
    shares = [bool(hit[one.offsets].any()) for one in course.clusters if SETTLED <= one.offsets[-1] < LAST]
    return course, float(np.mean(shares))


def compared(course: WidthHistory, before: WidthHistory) -> tuple[float, float, float]:
    """Times as wide as otherwise: on average during the attack, at its end, and two thousand clusters later."""
    wider = np.concatenate([np.ones(20), course.widths[20:] / before.widths[20:]])
    during = wider[SETTLED // 100 : LAST // 100]
    return float(during.mean()), float(wider[LAST // 100 - 1]), float(wider[-10:].mean())


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("share", [0.1, *at_night(0.01)])
def test_one_extreme_sent_again_and_again_widens_a_spread_by_a_bounded_factor(rule: str, share: float) -> None:
    course, s = attacked(rule, FREE, share, np.array([EXTREME]))
    wider, _, after = compared(course, quiet(rule, FREE))
    assert after == pytest.approx(1.0, abs=0.05), "the width does not come back"
    # In balance, with the mean at a distance d from that of the honest values, whose variance is h:
    # v = (1 - s)(h + d²) + s 25/4 v and (1 - s) d = s 5/2 root v. So v = h (1 - s)² / (1 - 29/4 s). The distance is
    # largest if all extremes are on one side.
    assert s < 4 / 29
    measured(
        "R33",
        f"times as wide as otherwise, the learned width of an attribute without bounds while {share:.0%} of records "
        "are one extreme",
        knows=SENDER,
        success=wider,
        bound=(1 - s) / (1 - 29 / 4 * s) ** 0.5,
        source="(1 - s) / root(1 - 29 s/4) for a share s < 4/29 of the published values: each counts up to 2.5 spreads",
        beside=f"s = {s:.3f}; two thousand clusters after the last extreme {after:.2f}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
def test_extremes_of_many_sizes_make_an_attribute_without_bounds_count_for_nothing(rule: str) -> None:
    """Extremes that are far from each other are in one cluster each, so that few records are many published values."""
    draw = np.random.default_rng(8)
    sizes = 2.0 ** draw.uniform(10, 53, 5000) * draw.choice([-1.0, 1.0], 5000)
    course, s = attacked(rule, FREE, 0.05, sizes)
    _, wider, after = compared(course, quiet(rule, FREE))
    assert s > 4 / 29
    measured(
        "R33",
        "times as wide as otherwise, the learned width of an attribute without bounds after 45000 records, 5% of them "
        "extremes of many sizes",
        knows=SENDER,
        success=wider,
        source="with 4/29 of the published values or more, a width grows as long as the attack lasts",
        beside=f"s = {s:.3f}; two thousand clusters after the last extreme {after:.2f}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
def test_a_width_grows_by_a_bounded_factor_per_cluster(rule: str) -> None:
    course, s = attacked(rule, FREE, 0.5, np.array([EXTREME]))
    numbers = np.array([sum(one.offsets[-1] < end for one in course.clusters) for end in (FIRST, LAST)])
    growth = course.variances[LAST // 100 - 1] / course.variances[FIRST // 100 - 1]
    per_cluster = float(growth ** (0.5 / (numbers[1] - numbers[0])))
    measured(
        "R33",
        "factor by which the learned width of an attribute without bounds grows per cluster while half of the records "
        "are one extreme",
        knows=SENDER,
        success=per_cluster,
        bound=(0.995 * (1 + 0.005 * 25 / 4)) ** 0.5,
        source="a published value counts up to 2.5 spreads, with a weight of 1/200",
        beside=f"s = {s:.3f}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("share", [0.1, *at_night(0.01, 0.5)])
def test_a_width_of_an_attribute_with_bounds_is_limited_by_them(rule: str, share: float) -> None:
    course, s = attacked(rule, LOOSE, share, np.array([1000.0]))
    before = quiet(rule, LOOSE)
    assert before.widths[20:].max() < 0.13 * 1000, "loose bounds alone do not widen it"
    wider, _, after = compared(course, before)
    assert after == pytest.approx(1.0, abs=0.05), "the width does not come back"
    measured(
        "R33",
        f"largest learned width while {share:.0%} of records are at a bound, in widths of the bounds, which are ten "
        "times too wide",
        knows=SENDER,
        success=float(course.widths.max()) / 1000,
        # The largest variance of values between two bounds is a quarter of the squared width, and the unit of distances
        # is root 12 deviations.
        bound=3**0.5,
        source="root 3: published values lie within the bounds",
        beside=f"s = {s:.3f}; times as wide as otherwise {wider:.2f}, two thousand clusters after the last {after:.2f}",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
def test_records_at_the_mean_narrow_a_spread_by_a_bounded_factor(rule: str) -> None:
    course, s = attacked(rule, FREE, 0.1, np.array([50.0]))
    wider, _, after = compared(course, quiet(rule, FREE))
    assert after == pytest.approx(1.0, abs=0.05)
    measured(
        "R33",
        "times as narrow as otherwise, the learned width of an attribute while 10% of records are at its mean",
        knows=f"the mean; {SENDER}",
        success=1 / wider,
        bound=(1 - s) ** -0.5,
        source="1 / root(1 - s): the other published values remain",
        beside=f"s = {s:.3f}, clusters with such a record",
        rule=rule,
    )


# ---------------------------------------------------------------- an extreme before anything is published


def loss_of(course: WidthHistory, values: Float64Matrix, counted: Int64Vector) -> float:
    """Loss of income of some records, as a share of its variance."""
    published = np.full(len(values), np.nan)
    for cluster in course.clusters:
        published[cluster.offsets] = float(cluster.centroid[1])
    errors = values[counted, 1] - published[counted]
    return float(np.square(errors).mean() / values[counted, 1].var())


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("income", INCOME)
def test_an_extreme_in_the_first_buffer_costs_loss_of_its_attribute(rule: str, income: str) -> None:
    extreme = EXTREME if income == FREE else 1000.0
    values = drawn(140_000 if income == FREE else 12_000)
    changed = values.copy()
    changed[50, 1] = extreme
    before, after = (course_of(rule, income, one) for one in (values, changed))
    own = next(one for one in after.clusters if 50 in one.offsets)
    assert len(own.offsets) >= K
    published = float(own.centroid[1])
    assert published < extreme / 5, "it is published as the mean of its cluster"
    others, later = np.setdiff1d(np.arange(1000), own.offsets), np.arange(9000, 10_000)
    measured(
        "R33",
        f"loss of income of the other records among the first 1000, one of the first 100 is an extreme, {income}",
        knows="when the stream starts; sends one record",
        success=loss_of(after, changed, others),
        source="before 32 clusters are published, a value counts up to 12 robust spreads from the median",
        beside=f"without it {loss_of(before, values, others):.3f}; of the tenth 1000 records "
        f"{loss_of(after, changed, later):.3f}, without it {loss_of(before, values, later):.3f}",
        rule=rule,
    )
    wide = np.flatnonzero(after.widths[20:] > 1.5 * before.widths[20:])
    if income == LOOSE:
        assert not len(wide), "bounds limit what one published value does"
    if not len(wide):
        return
    end = 100 * (20 + int(wide[-1]) + 1)
    assert end < len(values), "the width does not come back"
    measured(
        "R33",
        "clusters until a learned width is below 1.5 times that without the extreme, one of the first 100 records is "
        f"an extreme, {income}",
        knows="when the stream starts; sends one record",
        success=float(sum(one.offsets[-1] < end for one in after.clusters)),
        # Of the first published values none is limited. The weight w of a value shrinks by 1/200 per cluster, and
        # the variance is at most w x² + h.
        bound=float(200 * np.log(published**2 / before.variances[-1])),
        source="200 ln(x² / h) for a published extreme x and a variance h of the others",
        beside=f"published as {published:.1e}",
        rule=rule,
    )


# ---------------------------------------------------------------- what is committed


class Released(NamedTuple):
    """The members of each cluster, and what is committed at last."""

    clusters: list[list[int]]
    state: bytes


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("after", [150, 400])
def test_what_is_committed_of_spreads_depends_on_published_values_alone(rule: str, after: int) -> None:
    """Before and after 32 clusters are published."""
    values = drawn(1000, 2)
    first = flow_of(rule, FREE)
    decided = [
        offset for offset in range(1000) if push(first, values[offset : offset + 1], np.array([offset])).clusters
    ]
    # Two records come between these decisions; who expires has to, whatever the youngest say.
    before = next(one for one, other in pairwise(decided) if one > after and other > one + 2)
    states = set()
    for held in (values[before + 1, 1], 12345.678, -EXTREME):
        flow, changed = flow_of(rule, FREE), values.copy()
        changed[before + 1 : before + 3, 1] = held
        push(flow, changed[: before + 1], np.arange(before + 1))
        assert not push(flow, changed[before + 1 : before + 3], np.arange(before + 1, before + 3)).clusters
        states.add(flow.adaptive_state.to_bytes(flow.policy))
        spreads = flow.adaptive_state.spreads
        assert spreads is not None
        assert bool(spreads.widths.all()) == (after == 400)
    assert len(states) == 1
    impossible("R9", "spreads are learned from published values; what is held moves nothing that is committed")


def with_one(rule: str, place: int, income: float, nine: list[tuple[int, int]], count: int) -> Released:
    """Release records, one of them with this income; while only nine people send, what is due is suppressed."""
    values, people = drawn(count), np.arange(count)
    values[place, 1] = income
    for start, end in nine:
        people[start:end] = 10_000 + people[start:end] % 9
    flow = flow_of(rule, FREE, subject="who")
    clusters, suppressed = list[DecidedCluster](), list[int]()
    for start, end in pairwise(range(0, count + 1, 100)):
        decisions = push(flow, values[start:end], np.arange(start, end), people[start:end])
        clusters += decisions.clusters
        suppressed += decisions.suppressed
    assert place in suppressed
    return Released([one.offsets for one in clusters], flow.adaptive_state.to_bytes(flow.policy))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("place", [10, 2200])
def test_a_suppressed_extreme_moves_nothing_that_is_committed(rule: str, place: int) -> None:
    """While the first one is held no cluster is decided; when the second one comes, spreads are learned."""
    usual, extreme = (with_one(rule, place, one, [(0, 200), (2000, 2400)], 4000) for one in (50.0, EXTREME))
    assert usual == extreme
    impossible(
        "R9",
        "a value that is suppressed moves no spread, except if clusters are decided while it is held and fewer than 32 "
        "are published",
    )


# Block releases it together with the others that are held.
@pytest.mark.parametrize("rule", ["nearest", "awo"])
def test_before_32_clusters_are_published_a_suppressed_extreme_moves_decisions(rule: str) -> None:
    usual, extreme = (with_one(rule, 100, one, [(60, 400)], 600) for one in (300.0, EXTREME))
    # Of the 60 people that sent first, those that are released with others than otherwise.
    moved = {offset for cluster in extreme.clusters if cluster not in usual.clusters for offset in cluster}
    measured(
        "R33",
        "records that are released with others than otherwise, because a record held at the same time has an extreme "
        "income, without bounds, and is suppressed later, before 32 clusters are published",
        knows="nothing",
        success=len(moved & set(range(60))) / 60,
        source="until then the held records scale distances, whatever becomes of them",
        rule=rule,
    )


@pytest.mark.parametrize("rule", RULES)
def test_before_32_clusters_are_published_no_width_is_committed_though_held_records_scale_distances(rule: str) -> None:
    values, offsets = drawn(300), np.arange(300)

    def clusters_of(income: str, scaling: str) -> list[list[int]]:
        decisions = push(flow_of(rule, income, scaling=scaling), values, offsets)
        return [cluster.offsets for cluster in decisions.clusters]

    # These decisions are the same, however wide the bounds are, so that held records scale distances and not bounds.
    scaled = clusters_of(FREE, "spreads")
    assert scaled == clusters_of(LOOSE, "spreads") != clusters_of(LOOSE, "bounds")
    flow, published, are_wide = flow_of(rule, FREE), 0, []
    for offset in range(600):
        published += len(push(flow, drawn(600)[offset : offset + 1], np.array([offset])).clusters)
        spreads = flow.adaptive_state.spreads
        assert spreads is not None
        assert spreads.clusters_seen == published
        are_wide.append((bool(published >= 32), *set((spreads.widths > 0).tolist())))
    assert set(are_wide) == {(False, False), (True, True)}
    impossible("R9", "until 32 clusters are published no width is committed: held records scale distances meanwhile")


# ---------------------------------------------------------------- records that move weights

UNBOUNDED = {"role": "quasi_identifier", "resolution": 1000}
ATTACKS: dict[str, tuple[dict[str, Any], str]] = {
    "early": (UNBOUNDED, "one of the first 100 records is false and has an extreme fnlwgt, which has no bounds"),
    "sizes": (UNBOUNDED, "5% of records are false and have extreme fnlwgt of many sizes, which has no bounds"),
    "bounds": (
        quasi(0, 15_000_000, resolution=1000),
        "5% of records are false and have a fnlwgt at its bounds, which are ten times too wide",
    ),
}
"""Fnlwgt is a field of Adult with values up to 1.5 million."""
FIELDS = ("age", "hours-per-week", "fnlwgt")
HONEST, BEGIN, WATCHED, STEP = 20_000, 2000, 15_000, 10
"""Records; from where on the attacker sends, from where on targets are counted; records per transaction."""


class Seen(NamedTuple):
    """How often a cluster is found by an age, and its record; ages published as they are; loss of ages."""

    found: Float64Vector
    linked: float
    exact: float
    loss: float


def of_adult(folder: Path) -> Float64Matrix:
    rows = adult(folder, HONEST, "fnlwgt")
    return np.array([[float(row[name]) for name in FIELDS] for row in rows])


def falsified(values: Float64Matrix, attack: str) -> tuple[Float64Matrix, BoolVector]:
    """The records, some of them from the attacker instead of honest people, and which ones."""
    draw, values = np.random.default_rng(4), values.copy()
    is_false: BoolVector = (np.arange(HONEST) > BEGIN) & (draw.random(HONEST) < 0.05)
    extremes = 2.0 ** draw.uniform(24, 53, HONEST) * draw.choice([-1.0, 1.0], HONEST)
    if attack == "bounds":
        extremes = draw.choice([0.0, 15_000_000.0], HONEST)
    if attack == "early":
        is_false, extremes = np.arange(HONEST) == 50, np.full(HONEST, EXTREME)
    values[is_false, 2] = extremes[is_false]
    return values, is_false


def seen(values: Float64Matrix, is_false: BoolVector, rule: str, weight: dict[str, Any] | None) -> Seen:
    """What an attacker finds who knows an age and when it comes; without ``weight`` there are two attributes."""
    fields = {"age": quasi(17, 90, integer=True), "hours-per-week": quasi(1, 99, integer=True)}
    document = {
        "attributes": fields if weight is None else fields | {"fnlwgt": weight},
        "subject": "every_record",
        "privacy": {"k": K},
        "stream": {"delta": DELTA, "rule": rule},
    }
    policy = Policy.from_document(Document.model_validate(document))
    flow, clusters, newest = PartitionPipeline(policy, JsonEncoder(policy)), list[DecidedCluster](), list[int]()
    for start in range(0, len(values), STEP):
        places = np.arange(start, start + STEP)
        clusters += push(flow, values[places, : len(policy.quasi_identifiers)], places).clusters
        newest += [start + STEP - 1] * (len(clusters) - len(newest))
    published = np.array([float(one.centroid[0]) for one in clusters])
    found, linked, errors = list[float](), list[float](), list[float]()
    for number, cluster in enumerate(clusters):
        honest = [offset for offset in cluster.offsets if not is_false[offset]]
        for target in honest:
            if not WATCHED < target < len(values) - 2 * DELTA:
                continue
            # Of the clusters that left while the target was held, those whose published age is nearest to its own.
            first, end = np.searchsorted(newest, [target, target + DELTA + STEP]).tolist()
            away = np.abs(published[first:end] - values[target, 0])
            nearest = first + np.flatnonzero(away == away.min())
            found.append(float(number in nearest) / len(nearest))
            linked.append(found[-1] / len(honest))
            errors.append(float(published[number] - values[target, 0]))
    exact, loss = float(np.mean(np.array(errors) == 0)), float(np.square(errors).mean() / values[:, 0].var())
    return Seen(np.array(found), float(np.mean(linked)), exact, loss)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("attack", ATTACKS)
def test_false_extremes_of_one_attribute_make_clusters_tighter_in_another(
    data_dir: Path, attack: str, rule: str
) -> None:
    weight, what = ATTACKS[attack]
    honest, nobody = of_adult(data_dir), np.zeros(HONEST, np.bool_)
    false = seen(*falsified(honest, attack), rule, weight)
    plain, without = (seen(honest, nobody, rule, one) for one in (weight, None))
    assert plain.found.mean() < without.found.mean(), "else an attacker had nothing to gain"
    measured(
        "R33",
        f"cluster of a record of Adult found by its age, k = {K}: {what}",
        knows=f"age of the target, and when it comes; {SENDER}",
        success=false.found,
        source="point 7: writers are trusted",
        beside=f"without false records {plain.found.mean():.3f}, without this attribute {without.found.mean():.3f}; "
        f"its record {false.linked:.3f} instead of {plain.linked:.3f}; age published as it is {false.exact:.3f} "
        f"instead of {plain.exact:.3f}; loss of age {false.loss:.3f} instead of {plain.loss:.3f}",
        rule=rule,
    )
