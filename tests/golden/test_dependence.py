"""Preserved dependence, set in the policy: points of the curves of [1]_ that a reproduction has numbers for.

Six quasi-identifiers X and seven confidential attributes Y, MDAV, k from 5 to 100, eleven weights lambda; then X in
blocks of b columns. The paper prints curves (its Figs. 8 to 14) and two sets of counts of categories, which are met
only with 0.02 for the width of a category, and rounding to nearest (its text: 0.2, and floor).

References
----------
.. [1] D. Rebollo-Monedero, J. Forné, M. Soriano and J. Puiggalí Allepuz, "k-Anonymous Microaggregation with
   Preservation of Statistical Dependence", Information Sciences 342, 2016.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shoal.audit import judge
from shoal.audit.measures import known_classes, linked_share, mean_of_fewest_values
from shoal.policy import Policy
from support.golden_tables import standardised, summary_of
from support.published_data import read_rows

pytestmark = pytest.mark.golden

WEIGHTS = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
TABLES: dict[tuple[str, str], dict[int, list[float]]] = {
    ("census", "d_x"): {
        5: [0.06350, 0.07384, 0.07953, 0.08687, 0.09930, 0.10717, 0.11210, 0.12936, 0.14690, 0.17407, 0.30140],
        10: [0.09990, 0.11168, 0.12477, 0.13921, 0.15044, 0.16376, 0.17692, 0.19417, 0.21854, 0.25777, 0.35809],
        50: [0.24389, 0.25314, 0.26291, 0.28123, 0.29724, 0.31861, 0.32975, 0.33445, 0.38318, 0.42456, 0.44971],
        100: [0.32063, 0.33781, 0.35297, 0.38240, 0.40840, 0.43194, 0.45693, 0.48264, 0.49760, 0.52413, 0.54981],
    },
    ("census", "d_y"): {
        5: [0.29985, 0.16281, 0.13234, 0.10379, 0.08940, 0.08001, 0.06919, 0.06265, 0.05630, 0.05167, 0.04328],
        10: [0.37061, 0.24744, 0.17956, 0.15241, 0.13654, 0.12258, 0.11247, 0.09991, 0.09142, 0.08262, 0.07341],
        50: [0.48460, 0.43882, 0.35933, 0.32984, 0.29642, 0.26731, 0.26030, 0.24786, 0.24728, 0.23196, 0.22215],
        100: [0.54041, 0.52428, 0.46700, 0.42937, 0.39430, 0.37150, 0.36296, 0.34481, 0.33948, 0.33879, 0.34490],
    },
    ("census", "l_avg"): {
        5: [3.8750, 3.8472, 3.8009, 3.7222, 3.7315, 3.7037, 3.6574, 3.6065, 3.5787, 3.4861, 3.3287],
        10: [6.9630, 6.8981, 6.7130, 6.5833, 6.6296, 6.5833, 6.4352, 6.4259, 6.2130, 6.0278, 5.7037],
        50: [21.7619, 21.8095, 21.3810, 21.0952, 20.0952, 19.6667, 19.1429, 19.2381, 18.4286, 18.1429, 17.4286],
        100: [32.1000, 31.1000, 30.1000, 29.8000, 28.4000, 27.6000, 27.9000, 28.1000, 27.6000, 27.4000, 27.3000],
    },
    ("tarragona", "d_x"): {
        5: [0.15838, 0.16097, 0.16790, 0.18921, 0.19241, 0.20115, 0.24069, 0.28613, 0.33418, 0.35014, 0.37659],
        10: [0.25464, 0.25873, 0.27777, 0.28926, 0.30729, 0.31946, 0.32309, 0.35158, 0.38854, 0.41177, 0.44324],
        50: [0.53940, 0.54416, 0.53610, 0.54443, 0.55494, 0.56849, 0.58373, 0.59632, 0.61131, 0.63238, 0.65110],
        100: [0.66855, 0.65825, 0.64418, 0.64747, 0.66711, 0.67012, 0.67751, 0.68587, 0.70603, 0.71900, 0.72568],
    },
    ("tarragona", "d_y"): {
        5: [0.36672, 0.33953, 0.31149, 0.26900, 0.25365, 0.24394, 0.23983, 0.23673, 0.21902, 0.20109, 0.19851],
        10: [0.49180, 0.42355, 0.41144, 0.40422, 0.36290, 0.34276, 0.32154, 0.31120, 0.28477, 0.27782, 0.27222],
        50: [0.70119, 0.68913, 0.66020, 0.64401, 0.61922, 0.60363, 0.59902, 0.59488, 0.59367, 0.59200, 0.58916],
        100: [0.78770, 0.75726, 0.74581, 0.73866, 0.72333, 0.71721, 0.71561, 0.71241, 0.70951, 0.70885, 0.70902],
    },
    ("tarragona", "l_avg"): {
        5: [3.6084, 3.6145, 3.5843, 3.4880, 3.4458, 3.4458, 3.4217, 3.3133, 3.2952, 3.2349, 3.2349],
        10: [6.4699, 6.5663, 6.4096, 6.3855, 6.1687, 6.0843, 6.0964, 5.9880, 6.0241, 5.8675, 5.8193],
        50: [21.5625, 21.0000, 19.5625, 20.2500, 19.2500, 18.3750, 19.5000, 18.5625, 19.0000, 18.3125, 17.8125],
        100: [31.6250, 30.7500, 32.6250, 30.5000, 30.5000, 29.5000, 28.8750, 28.5000, 27.2500, 27.3750, 26.5000],
    },
}
BLOCKS: dict[str, dict[int, list[float]]] = {
    "d_x": {
        2: [0.01761, 0.03270, 0.04457, 0.05217, 0.06266, 0.07745, 0.08602, 0.10326, 0.12639, 0.16992, 0.35809],
        4: [0.04725, 0.06429, 0.07598, 0.08958, 0.09999, 0.11438, 0.12964, 0.14820, 0.17010, 0.21931, 0.35809],
        6: [0.09990, 0.11168, 0.12477, 0.13921, 0.15044, 0.16376, 0.17692, 0.19417, 0.21854, 0.25777, 0.35809],
    },
    "dld": {
        2: [0.94537, 0.83148, 0.71852, 0.65741, 0.58889, 0.50185, 0.47593, 0.34815, 0.25648, 0.16574, 0.02222],
        4: [0.52315, 0.40000, 0.33148, 0.28426, 0.26019, 0.20556, 0.17315, 0.15185, 0.11204, 0.06852, 0.02222],
        6: [0.09074, 0.08241, 0.07407, 0.06852, 0.06296, 0.05463, 0.05648, 0.05093, 0.04722, 0.04074, 0.02222],
    },
}


STREAM = [
    ("bounds", 0.1, 0.220, 0.399),
    ("bounds", 0.5, 0.270, 0.322),
    ("bounds", 0.9, 0.326, 0.284),
    ("spreads", 0.1, 0.225, 0.447),
    ("spreads", 0.5, 0.226, 0.378),
    ("spreads", 0.9, 0.288, 0.306),
]
"""Ours, of Census with k = 10, delta = 100 and rule ``awo``: scaling, weight, losses of X and of Y."""


def policy_of(names: list[str], k: int, weight: float) -> dict[str, Any]:
    quasi, confidential = {"role": "quasi_identifier"}, {"role": "confidential", "type": "number"}
    return {
        "attributes": {name: quasi if number < 6 else confidential for number, name in enumerate(names)},
        "subject": "every_record",
        "privacy": {"k": k},
        "steering": {"dependence": weight},
    }


def summary(folder: Path, data_dir: Path, table: str, k: int, weight: float, *more: str) -> dict[str, Any]:
    """Run `shoal batch` with MDAV and return its summary."""
    policy = policy_of(list(read_rows(data_dir, table)[0]), k, weight)
    return summary_of("batch", policy, data_dir / f"{table}.csv", folder, "--algorithm", "mdav", *more)


@pytest.mark.parametrize("k", [5, 10, 50, 100])
@pytest.mark.parametrize("table", ["census", "tarragona"])
def test_both_losses_and_categories_at_every_weight(table: str, k: int, data_dir: Path, tmp_path: Path) -> None:
    summaries = [summary(tmp_path, data_dir, table, k, weight) for weight in WEIGHTS]
    assert [one["d_x"] for one in summaries] == pytest.approx(TABLES[table, "d_x"][k], abs=1e-5)
    assert [one["d_y"] for one in summaries] == pytest.approx(TABLES[table, "d_y"][k], abs=1e-5)
    assert [one["l_avg"] for one in summaries] == pytest.approx(TABLES[table, "l_avg"][k], abs=1e-4)
    assert summaries[0]["d_x"] < summaries[0]["d_y"]
    assert summaries[-1]["d_y"] < summaries[-1]["d_x"]


@pytest.mark.parametrize("b", [2, 4, 6])
def test_smaller_blocks_lose_less_and_disclose_more(b: int, data_dir: Path, tmp_path: Path) -> None:
    summaries = [summary(tmp_path, data_dir, "census", 10, weight, "--param", f"blocks={b}") for weight in WEIGHTS]
    assert [one["d_x"] for one in summaries] == pytest.approx(BLOCKS["d_x"][b], abs=1e-5)
    assert [one["dld"] for one in summaries] == pytest.approx(BLOCKS["dld"][b], abs=6e-6)
    for weight, one in zip(WEIGHTS, summaries, strict=True):  # at 1 all blocks are the same partition
        assert ("jointly_k_anonymous" in one) == (b < 6 and weight < 1)
    if b < 6:
        assert all(after < before for before, after in pairwise(one["dld"] for one in summaries))


@pytest.mark.parametrize(
    ("b", "d_x", "dld"),
    [
        (2, [0.15782, 0.24809, 0.44324], [0.65707, 0.17986, 0.01319]),
        (6, [0.25464, 0.31946, 0.44324], [0.07194, 0.03597, 0.01319]),
    ],
)
def test_blocks_of_tarragona(b: int, d_x: list[float], dld: list[float], data_dir: Path, tmp_path: Path) -> None:
    summaries = [summary(tmp_path, data_dir, "tarragona", 10, w, "--param", f"blocks={b}") for w in (0.0, 0.5, 1.0)]
    assert [one["d_x"] for one in summaries] == pytest.approx(d_x, abs=1e-5)
    assert [one["dld"] for one in summaries] == pytest.approx(dld, abs=6e-6)


def test_the_number_of_linked_records_is_exact_and_the_judge_finds_it(data_dir: Path, tmp_path: Path) -> None:
    found = summary(tmp_path, data_dir, "census", 10, 0.0, "--evidence", str(tmp_path / "evidence.jsonl"))
    assert found["dld"] * 1080 == pytest.approx(98, abs=1e-9)
    policy = Policy.load(tmp_path / "policy.json")
    judged = judge(policy, data_dir / "census.csv", tmp_path / "out.csv", tmp_path / "evidence.jsonl")
    assert judged.clusters is not None
    clusters = judged.clusters.clusters
    assert linked_share(judged.originals, clusters, judged.published) == pytest.approx(found["dld"], abs=1e-12)
    values = mean_of_fewest_values(policy, judged.originals, known_classes(judged.clusters))
    assert values == pytest.approx(found["l_avg"], abs=1e-12)


@pytest.mark.parametrize(
    ("table", "counts"),
    [("census", [196, 151, 93, 189, 178, 187, 167]), ("tarragona", [107, 114, 106, 119, 149, 113, 117])],
)
def test_numbers_of_categories_equal_those_of_the_paper(table: str, counts: list[int], data_dir: Path) -> None:
    scores = standardised(data_dir, table)[:, 6:]
    assert [len(np.unique(np.rint(column / 0.02))) for column in scores.T] == counts


@pytest.mark.parametrize(("scaling", "weight", "d_x", "d_y"), STREAM)
def test_in_a_stream_more_weight_of_confidential_numbers_moves_loss_to_the_quasi_identifiers(
    scaling: str, weight: float, d_x: float, d_y: float, data_dir: Path, tmp_path: Path
) -> None:
    rows = read_rows(data_dir, "census")
    policy = policy_of(list(rows[0]), 10, weight) | {"stream": {"delta": 100, "rule": "awo"}}
    policy["steering"]["scaling"] = scaling
    for number, name in enumerate(rows[0]):
        bounds = [f(float(row[name]) for row in rows) for f in (min, max)]
        policy["attributes"][name] = policy["attributes"][name] | {"bounds": bounds}
        policy["attributes"][name] |= {"resolution": 0} if number < 6 else {}
    found = summary_of("pipe", policy, data_dir / "census.csv", tmp_path)
    assert (found["d_x"], found["d_y"]) == pytest.approx((d_x, d_y), abs=0.0006)
