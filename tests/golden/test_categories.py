"""Mixed attributes of the table EIA: losses and published states of MDAV, with and without a taxonomy.

All numbers are *ours*, without a published one: they were computed by another program, from the definitions. Numbers
and months have variance 1. Two states are two variances apart, and with the taxonomy two states of one region one
variance. States are published by the taxonomy of the four regions of the US Census Bureau, also where clusters were
formed without it. A tree distance is the number of edges between two nodes, over that between two leaves of different
regions.

References
----------
.. [1] J. Domingo-Ferrer and V. Torra, "Ordinal, Continuous and Heterogeneous k-Anonymity Through Microaggregation",
   Data Mining and Knowledge Discovery 11(2), 2005. doi:10.1007/s10618-005-0007-5
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pytest
from shoal import microaggregate
from shoal.arrays import Float64Matrix, Int32Vector
from shoal.policy import Policy, Scale, Taxonomy
from shoal.scales import CategoryIndex, Embedding
from support.published_data import read_rows
from support.scales import attribute, block_of, policy_with

pytestmark = pytest.mark.golden

REGIONS = {
    "Northeast": "CT ME MA NH RI VT NJ NY PA",
    "Midwest": "IL IN MI OH WI IA KS MN MO NE ND SD",
    "South": "DE FL GA MD NC SC VA DC WV AL KY MS TN AR LA OK TX",
    "West": "AZ CO ID MT NV NM UT WY AK CA HI OR WA",
}
REGION = {state: region for region, states in REGIONS.items() for state in states.split()}
TAXONOMY = Taxonomy.of_rows([[state, region, "US"] for state, region in REGION.items()])
Rule: TypeAlias = Literal["mode", "median", "ancestor"]
RULES: tuple[Rule, ...] = ("mode", "median", "ancestor")
NUMBERS = ("RESREVENUE", "RESSALES", "TOTREVENUE", "TOTSALES")
MONTHS = slice(0, 1)
STATES = slice(5, None)


def policy_of(k: int, taxonomy: Taxonomy | None, publish: Rule) -> Policy:
    return policy_with(
        attribute("MONTH", Scale.ORDINAL, order=tuple(range(1, 13))),
        attribute("STATE", Scale.NOMINAL, taxonomy=taxonomy, publish=publish),
        *(attribute(name, Scale.NUMERIC) for name in NUMBERS),
        k=k,
        delta=None,
    )


def embedded(folder: Path, policy: Policy) -> tuple[Float64Matrix, Embedding]:
    """Return the values of the table and their embedding."""
    rows = [
        [int(row["MONTH"]) - 1, json.dumps(row["STATE"]), *(float(row[name]) for name in NUMBERS)]
        for row in read_rows(folder, "eia")
    ]
    index = CategoryIndex(policy)
    values = index.encode(block_of(policy, rows)).values
    return values, Embedding.of_table(policy, values, index.trees, index.texts)


def published(folder: Path, policy: Policy, labels: Int32Vector, publish: Rule) -> list[list[Any]]:
    """Return what the clusters publish of month and state, by the taxonomy, for each record."""
    month, state, *_ = policy.attributes
    values, embedding = embedded(
        folder,
        replace(policy, attributes=(month, replace(state, taxonomy=TAXONOMY, publish=publish), *policy.attributes[2:])),
    )
    bounds = np.append(0, np.cumsum(np.bincount(labels)))
    texts = embedding.published(values[np.argsort(labels, kind="stable")], bounds).texts
    return [[json.loads(text) for text in texts[label][:2]] for label in labels.tolist()]


def up(node: str) -> list[str]:
    return ["US"] if node == "US" else [node, "US"] if node in REGIONS else [node, REGION[node], "US"]


def distance(one: str, other: str) -> float:
    """Return the number of edges between two nodes, over 4."""
    return len(set(up(one)) ^ set(up(other))) / 4


@pytest.mark.parametrize(
    ("taxonomy", "k", "losses", "changed", "distances", "at_root", "months"),
    [
        (None, 3, (0.01333, 0.00898, 0.01752, 0.02664), 0.0142, (0.0092, 0.0126), 0.0161, 0.3065),
        (None, 5, (0.03220, 0.01729, 0.07044, 0.05454), 0.0547, (0.0397, 0.0558), 0.0934, 0.4866),
        (None, 10, (0.06506, 0.02794, 0.18642, 0.09509), 0.1347, (0.1026, 0.1603), 0.2986, 0.7239),
        (TAXONOMY, 3, (0.01267, 0.00813, 0.02086, 0.02389), 0.0274, (0.0133, 0.0176), 0.0051, 0.2923),
        (TAXONOMY, 5, (0.02774, 0.01555, 0.06502, 0.04474), 0.0772, (0.0389, 0.0607), 0.0188, 0.4572),
        (TAXONOMY, 10, (0.05230, 0.02348, 0.15926, 0.07652), 0.1935, (0.0935, 0.1303), 0.0587, 0.6540),
    ],
)
def test_states_and_months_of_eia(
    data_dir: Path,
    taxonomy: Taxonomy | None,
    k: int,
    losses: tuple[float, ...],
    changed: float,
    distances: tuple[float, ...],
    at_root: float,
    months: float,
) -> None:
    policy = policy_of(k, taxonomy, "mode")
    values, embedding = embedded(data_dir, policy)
    points = embedding.dense(values)
    labels = microaggregate(points, k, "mdav")
    means = np.array([points[labels == label].mean(axis=0) for label in range(labels.max() + 1)])
    within = ((points - means[labels]) ** 2).sum(axis=0)
    total = ((points - points.mean(axis=0)) ** 2).sum(axis=0)
    numbers = slice(MONTHS.stop, STATES.start)
    found = [within[part].sum() / total[part].sum() for part in (slice(None), numbers, STATES, MONTHS)]
    assert found == pytest.approx(losses, abs=5.01e-6)
    # The variance is half the mean squared distance of two states.
    variance = 0.976169 if taxonomy is None else 0.851143
    assert total[STATES].sum() / len(values) == pytest.approx(variance, abs=5.01e-7)

    originals = [(int(row["MONTH"]), row["STATE"]) for row in read_rows(data_dir, "eia")]
    by_rule = {rule: published(data_dir, policy, labels, rule) for rule in RULES}
    pairs = {rule: list(zip(originals, rows, strict=True)) for rule, rows in by_rule.items()}
    assert np.mean([one != node for (_, one), (_, node) in pairs["mode"]]) == pytest.approx(changed, abs=5.01e-5)
    median, ancestor = (
        float(np.mean([distance(one, node) for (_, one), (_, node) in pairs[rule]])) for rule in RULES[1:]
    )
    assert (median, ancestor) == pytest.approx(distances, abs=5.01e-5)
    assert np.mean([node == "US" for _, (_, node) in pairs["ancestor"]]) == pytest.approx(at_root, abs=5.01e-5)
    assert np.mean([abs(one - node) for (one, _), (node, _) in pairs["mode"]]) == pytest.approx(months, abs=5.01e-5)
