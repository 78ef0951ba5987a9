"""The Python interface: values, weights, centroids, and the codes of subjects."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from shoal.errors import ParameterError
from shoal.streams import StreamAggregator, StreamClusterer
from shoal.streams.aggregator import SubjectEncoder

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("parameters", "fault"),
    [
        ({"k": 2.0}, "k: must be a whole number"),
        ({"k": 12}, "delta: must be at least k - 1"),
        ({"max_share": 0.09}, "max_share: must be at least 1/k"),
        ({"position": float("nan")}, "position"),
        ({"weights": [1.0, 0.0]}, "weights: must be finite numbers above 0"),
        ({"weights": [[1.0, 2.0]]}, "weights"),
        ({"max_share": float("nan")}, "max_share: must be above 0"),
        ({"position": {"target_span": -1}}, "position: target_span"),
        ({"rule": None}, "rule: must be a name"),
    ],
)
def test_a_parameter_outside_its_domain_is_named(parameters: dict[str, Any], fault: str) -> None:
    with pytest.raises(ParameterError, match=fault):
        StreamAggregator(**{"k": 10, "delta": 10, **parameters})


@pytest.mark.parametrize("d", [1, 3])
def test_a_stream_that_begins_with_one_record_releases_it(d: int) -> None:
    stream = StreamAggregator(2, 2)
    assert stream.push(np.zeros((0, d))).positions.tolist() == []
    assert stream.push(np.zeros((1, d))).positions.tolist() == []
    assert stream.push(np.full((1, d), 5.0)).positions.tolist() == []
    released = stream.push(np.ones((1, d)))
    assert released.positions.tolist() == [0, 2]
    assert released.centroids.tolist() == [[0.5] * d]


def test_products_of_values_and_weights_that_overflow_are_refused_and_nothing_changes() -> None:
    stream = StreamAggregator(2, 2, weights=[1e308])
    for values in ([[1e100]], [[1e-150]]):
        with pytest.raises(ParameterError, match=r"values: must be finite, and times the weights at most 1e\+150"):
            stream.push(values)
    assert stream.push([[0.0], [1e-200], [1e-170]]).positions.tolist() == [0, 1]


def test_centroids_are_means_of_unweighted_values() -> None:
    values = np.random.default_rng(2).random((300, 3)) * [1.0, 100.0, 1e-3]
    stream = StreamAggregator(4, 30, weights=[1.0, 0.01, 1000.0])
    plain = StreamClusterer(4, 30, 3, rule="awo")
    calls = [stream.push(values[:120]), stream.push(values[120:]), stream.flush()]
    expected = [plain.push(values * [1.0, 0.01, 1000.0]), plain.flush()]
    positions = np.concatenate([out.positions for out in calls])
    assert positions.tolist() == np.concatenate([decided.positions for decided in expected]).tolist()
    for out in calls:
        for centroid, (start, end) in zip(out.centroids, pairwise(out.offsets.tolist()), strict=True):
            assert centroid == pytest.approx(values[out.positions[start:end]].mean(axis=0), rel=1e-14)
    assert len(stream._values) == 256, "the power of two above delta and a block"


def test_strings_and_integers_give_the_same_clusters() -> None:
    random = np.random.default_rng(4)
    values, codes = random.random((500, 2)), random.integers(0, 40, 500)
    results = []
    texts = [f"subject {code}" for code in codes]
    for subjects in (codes, texts, np.array(texts, object)):
        stream = StreamAggregator(5, 30, max_share=0.4)
        calls = [stream.push(values[start : start + 9], subjects[start : start + 9]) for start in range(0, 500, 9)]
        results.append([out.positions.tolist() for out in [*calls, stream.flush()]])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": [[1.0, np.nan]]}, "finite"),
        ({"values": [[1.0, 1e300]]}, "values: must be finite, and times the weights at most"),
        ({"values": [[True, False]]}, "values: must be numbers"),
        ({"values": np.ma.array([[1.0, 2.0]], mask=[[True, False]])}, "values: must not be masked"),
        ({"values": [[1.0, 2.0], [1.0]]}, "values: rows must have the same length"),
        ({"values": [[1.0, 2.0, 3.0]]}, "values: must have 2 columns"),
        ({"values": [[1.0, 2.0]], "subjects": ["a", "b"]}, "subjects"),
        ({"values": [[1.0, 2.0]], "confidential": ["x", "y"]}, "confidential: must have length 1"),
    ],
)
def test_invalid_records_change_nothing(arguments: dict[str, Any], message: str) -> None:
    stream = StreamAggregator(2, 3, weights=[1.0, 1.0])
    with pytest.raises(ParameterError, match=message):
        stream.push(**arguments)
    assert stream.flush().positions.tolist() == []
    out = stream.push([[1, 2], [3, 4], [5, 6], [7, 8]], confidential=np.zeros((4, 2)))
    assert out.positions.tolist() == [0, 1]


def test_flushing_an_empty_stream_returns_nothing() -> None:
    out = StreamAggregator(2, 3).flush()
    assert (len(out.positions), out.offsets.tolist(), len(out.suppressed)) == (0, [0], 0)


def test_strings_of_different_values_are_different_subjects() -> None:
    subjects = ["7", "-7", "70", "7e", "0x7", "٧", "7_0", "A", "a", "1e-9", "1e9"]
    subjects += ["1" * 40, "1" * 39 + "2", "9" * 30 + "e" + "9" * 17]
    assert SubjectEncoder(99).encode(subjects, len(subjects)).tolist() == list(range(len(subjects)))


@pytest.mark.parametrize(
    "subjects",
    [[1.0, 2.0], [True, False], ["a"], [["a", "b"]], np.array(["a", None], dtype=object), [b"a", b"b"], 5],
)
def test_other_types_are_rejected(subjects: Any) -> None:
    with pytest.raises(ParameterError, match="subjects: must be integers or strings"):
        SubjectEncoder(10).encode(subjects, 2)


def test_strings_and_integers_do_not_mix() -> None:
    encoder = SubjectEncoder(10)
    encoder.encode(["a"], 1)
    encoder.encode([1], 1)  # not remembered, so it changes nothing
    encoder.remember(1)
    with pytest.raises(ParameterError, match="subjects: strings in this block, integers before"):
        encoder.encode(["a"], 1)


def test_a_string_keeps_its_code_for_delta_records_and_memory_is_bounded() -> None:
    encoder = SubjectEncoder(20)
    code_of: dict[str, int] = {}
    last_seen: dict[str, int] = {}
    random = np.random.default_rng(0)
    for start in range(0, 3000, 7):
        subjects = [f"{name}" for name in random.integers(start, start + 60, 7)]
        for rank, (subject, code) in enumerate(zip(subjects, encoder.encode(subjects, 7).tolist(), strict=True), start):
            if rank - last_seen.get(subject, -100) <= 20:
                assert code == code_of[subject]
            elif subject in code_of:
                assert code >= code_of[subject]
            code_of[subject], last_seen[subject] = code, rank
        encoder.remember(7)
    assert len(encoder._codes._recent) + len(encoder._codes._older) <= 2 * (20 + 7)
