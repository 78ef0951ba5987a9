"""`shoal.sklearn.Microaggregator`: the checks of scikit-learn, and the guarantee of each call."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from shoal import microaggregate
from shoal.sklearn import Microaggregator
from sklearn.utils.estimator_checks import check_estimator

pytestmark = pytest.mark.unit

EXPECTED = {
    "check_methods_subset_invariance": "rows are partitioned with the others of the call: a part of fewer than k rows "
    "has no result, and one of more has another",
    "check_methods_sample_order_invariance": "of partitions that lose alike, the order of the rows decides; with most "
    "of the orders that the check draws it makes no difference",
}
SKIPPED = {"check_array_api_input": "takes arrays of other libraries only if SCIPY_ARRAY_API is set"}


def test_the_checks_of_scikit_learn_pass_but_for_the_explained_ones() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # checks give warnings that pytest would turn into errors
        found = check_estimator(Microaggregator(), expected_failed_checks=EXPECTED, on_skip=None, on_fail=None)
    others = {one["check_name"]: one["status"] for one in found if one["status"] != "passed"}
    explained = dict.fromkeys(EXPECTED, "xfail") | dict.fromkeys(SKIPPED, "skipped")
    assert others.items() <= explained.items()
    assert "check_methods_subset_invariance" in others
    assert len(found) > 40


def test_a_text_is_refused_without_being_shown() -> None:
    table = pd.DataFrame({"a": [1, 2, 3], "b": ["1", "2", "Hugo Meier"]})
    with pytest.raises(ValueError, match=r"^a column holds texts; give numbers only$"):
        Microaggregator(k=2).fit_transform(table)


def test_each_call_returns_the_means_of_clusters_of_k_rows_with_the_names_of_the_input() -> None:
    draw = np.random.default_rng(0)
    train, other = (pd.DataFrame(draw.random((count, 2)), columns=["age", "pay"]) for count in (50, 23))
    model = Microaggregator(k=4).set_output(transform="pandas")
    for table, made in ((train, model.fit_transform(train)), (other, model.transform(other))):
        labels = microaggregate(table.to_numpy(), k=4)
        pd.testing.assert_frame_equal(made, table.groupby(labels).transform("mean"))
        assert made.groupby(["age", "pay"]).size().min() >= 4
    assert model.labels_.tolist() == microaggregate(train.to_numpy(), k=4).tolist()
    assert model.get_feature_names_out().tolist() == ["age", "pay"]
    with pytest.raises(ValueError, match=r"3 sample\(s\).* minimum of 4 is required"):
        model.transform(other[:3])
