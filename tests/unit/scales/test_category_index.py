"""Codes of categories: equal texts are equal, taxonomies match by text, unused codes are dropped."""

from __future__ import annotations

import numpy as np
import pytest
from shoal.formats import JsonEncoder
from shoal.policy import Scale, Taxonomy
from shoal.scales import CategoryIndex
from shoal.streams import PartitionPipeline
from support.scales import attribute, block_of, policy_with

pytestmark = pytest.mark.unit


def test_codes_are_equal_for_equal_texts_of_all_blocks() -> None:
    policy = policy_with(attribute("sex", Scale.NOMINAL, missing="group"))
    index = CategoryIndex(policy)
    first = index.encode(block_of(policy, [['"F"'], ['"M"'], [None], ["1"]])).values[:, 0]
    second = index.encode(block_of(policy, [['"1"'], ["1"], ['"M"'], [None]])).values[:, 0]
    assert len({*first[[0, 1, 3]], second[0]}) == 4
    assert second[1:3].tolist() == [first[3], first[1]]
    assert np.isnan([first[2], second[3]]).all()
    assert [index.texts["sex"][int(code)] for code in second[:3]] == ['"1"', "1", '"M"']


def test_the_leaves_of_a_taxonomy_have_the_first_codes() -> None:
    taxonomy = Taxonomy.of_rows([["250", "low"], ["true", "low"], ["900", "high"]])
    policy = policy_with(attribute("code", Scale.NOMINAL, taxonomy=taxonomy))
    index = CategoryIndex(policy)
    codes = index.encode(block_of(policy, [['"250"'], ['"true"'], ['"7"'], ['"7"']])).values[:, 0]
    assert codes.tolist() == [0.0, 1.0, 3.0, 3.0]
    assert index.texts["code"][3] == '"7"'


def test_an_endless_number_of_categories_needs_bounded_memory() -> None:
    policy = policy_with(attribute("id", Scale.NOMINAL), attribute("sex", Scale.NOMINAL), k=2, delta=50)
    pipeline = PartitionPipeline(policy, JsonEncoder(policy))
    largest = 0
    for start in range(0, 4_000, 500):
        rows = [[f'"{number}"', '"F"'] for number in range(start, start + 500)]
        offsets = np.arange(start, start + 500)
        decisions = pipeline.push(block_of(policy, rows, start), np.column_stack([np.zeros_like(offsets), offsets]))
        for cluster in decisions.clusters:
            assert cluster.centroid == (min(f'"{offset}"' for offset in cluster.offsets), '"F"')
        largest = max(largest, len(pipeline._categories.texts["id"]))
    assert 512 < largest < 1600
