"""Mixed attributes of the table EIA: losses and published states of MDAV, with and without a taxonomy.

All numbers are *ours*, without a published one: they were computed by another program, from the definitions. Every
attribute has variance 1. States are published by the taxonomy of the four regions of the US Census Bureau, also where
clusters were formed without it. A tree distance is the number of edges between two nodes, over that between two leaves
of different regions.

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
from shoal.clustering.embedding import Embedding
from shoal.pipeline.category_index import CategoryIndex
from shoal.policy import Policy, Scale, Taxonomy
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


def medoid_distance(states: list[str], labels: Int32Vector) -> float:
    """Return the mean distance of records from that state of their cluster from which it is least."""
    total = 0.0
    for label in range(labels.max() + 1):
        own = [states[i] for i in np.flatnonzero(labels == label).tolist()]
        total += min(sum(distance(one, other) for other in own) for one in set(own))
    return total / len(states)


@pytest.mark.parametrize(
    ("taxonomy", "k", "losses", "changed", "distances", "at_root", "months"),
    [
        (None, 3, (0.01301, 0.00896, 0.01535, 0.02690), 0.0125, (0.0082, 0.0089, 0.0112), 0.0147, 0.3084),
        (None, 5, (0.03218, 0.01726, 0.06951, 0.05454), 0.0545, (0.0386, 0.0428, 0.0546), 0.0909, 0.4858),
        (None, 10, (0.06599, 0.02885, 0.18740, 0.09314), 0.1381, (0.1050, 0.1153, 0.1560), 0.2889, 0.7053),
        (TAXONOMY, 3, (0.01241, 0.00867, 0.01560, 0.02419), 0.0208, (0.0100, 0.0111, 0.0132), 0.0037, 0.2957),
        (TAXONOMY, 5, (0.02745, 0.01531, 0.05349, 0.04995), 0.0657, (0.0326, 0.0346, 0.0499), 0.0110, 0.4717),
        (TAXONOMY, 10, (0.05440, 0.02486, 0.14811, 0.07885), 0.1801, (0.0871, 0.0967, 0.1237), 0.0469, 0.6525),
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
    assert total[STATES].sum() == pytest.approx(len(values))

    originals = [(int(row["MONTH"]), row["STATE"]) for row in read_rows(data_dir, "eia")]
    by_rule = {rule: published(data_dir, policy, labels, rule) for rule in RULES}
    pairs = {rule: list(zip(originals, rows, strict=True)) for rule, rows in by_rule.items()}
    assert np.mean([one != node for (_, one), (_, node) in pairs["mode"]]) == pytest.approx(changed, abs=5.01e-5)
    median, ancestor = (
        float(np.mean([distance(one, node) for (_, one), (_, node) in pairs[rule]])) for rule in RULES[1:]
    )
    medoid = medoid_distance([state for _, state in originals], labels)
    assert (median, medoid, ancestor) == pytest.approx(distances, abs=5.01e-5)
    assert np.mean([node == "US" for _, (_, node) in pairs["ancestor"]]) == pytest.approx(at_root, abs=5.01e-5)
    assert np.mean([abs(one - node) for (one, _), (node, _) in pairs["mode"]]) == pytest.approx(months, abs=5.01e-5)
