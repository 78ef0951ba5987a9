from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from shoal.clustering.stream.buffer import Buffer, CoordinateBlock, InputValidator, SubjectEncoder
from shoal.clustering.stream.held import HEAD, TAIL
from shoal.errors import ParameterError

pytestmark = pytest.mark.unit

SLICE = 1024


def block(positions: list[int]) -> CoordinateBlock:
    column = np.array(positions, np.int64)
    return CoordinateBlock(
        np.tile(column.astype(np.float64)[:, None], 2),
        column * 10,
        column,
        column[:, None] * 100,
        np.zeros((len(column), 0)),
    )


def test_slices_of_a_block_are_laid_behind_the_held_records_and_the_buffer_starts_anew_when_full() -> None:
    buffer = Buffer(3, 2, 1)
    whole = block(list(range(SLICE + 10)))
    assert buffer.stage(whole, 0) == SLICE
    assert len(buffer) == 0
    buffer.held.line[:] = SLICE - 2, SLICE
    assert buffer.stage(whole, SLICE) == 10
    assert buffer.held.line.tolist() == [0, 2]
    assert buffer.positions().tolist() == [SLICE - 2, SLICE - 1]
    buffer.held.line[TAIL] += 10
    last = SLICE + 9
    assert len(buffer) == 12
    assert buffer.held.positions[11] == last
    assert buffer.held.subjects[11] == last * 10
    assert buffer.held.marks[0, 11] == last * 100
    assert buffer.held.coordinates[:, 11].tolist() == [last, last]
    assert buffer.held.line[HEAD] == 0


def test_a_whole_block_of_the_largest_delay_fits() -> None:
    buffer = Buffer(5, 2, 1)
    buffer.held.line[:] = 0, 5
    assert buffer.stage(block(list(range(SLICE))), 0) == SLICE
    assert buffer.held.line.tolist() == [0, 5]


GOOD: dict[str, Any] = {
    "coordinates": np.zeros((2, 3)),
    "subjects": np.array([1, 2]),
    "positions": np.array([4, 6]),
    "marks": np.array([[5], [5]]),
}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"coordinates": np.zeros((2, 2))}, r"coordinates: must be an array of float64, shape \(n, 3\)"),
        ({"coordinates": np.zeros((2, 3), np.float32)}, "coordinates"),
        ({"coordinates": [[0.0, 0.0, 0.0]]}, "coordinates"),
        ({"coordinates": np.full((2, 3), np.nan)}, "coordinates: must be finite"),
        ({"coordinates": np.full((2, 3), -np.inf)}, "coordinates: must be finite"),
        ({"subjects": np.array([1])}, r"subjects: must be an array of int64, shape \(2,\)"),
        ({"subjects": np.array(["a", "b"])}, "subjects"),
        ({"subjects": None}, "subjects: given in some blocks"),
        ({"positions": np.array([6, 6])}, "positions: must ascend"),
        ({"positions": np.array([3, 4])}, "positions: must ascend"),
        ({"positions": np.array([4, 2**62])}, "positions: must ascend"),
        ({"positions": np.array([[4, 5]])}, "positions"),
        ({"marks": None}, "marks: missing"),
        ({"marks": np.array([[5], [4]])}, "marks: must not fall"),
        ({"marks": np.array([[4], [5]])}, "marks: must not fall"),
        ({"marks": np.array([[5], [2**62]])}, "marks: must not fall"),
        ({"marks": np.zeros((2, 2), np.int64)}, "marks"),
    ],
)
def test_a_block_that_cannot_be_taken_is_refused_by_name_without_its_values(
    changed: dict[str, Any], message: str
) -> None:
    border = InputValidator(3, 1)
    first = border.check(np.zeros((1, 3)), np.array([1]), np.array([3]), np.array([[5]]))
    border.remember(first, by_subject=True)
    with pytest.raises(ParameterError, match=message):
        border.check(**{**GOOD, **changed})
    assert border.last == 3
    assert border.check(**GOOD).positions.tolist() == [4, 6]


def test_arrays_of_any_layout_are_taken() -> None:
    border = InputValidator(3, 1)
    frozen = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    frozen.setflags(write=False)
    checked = border.check(frozen, GOOD["subjects"], GOOD["positions"], GOOD["marks"])
    buffer = Buffer(5, 3, 1)
    buffer.stage(checked, 0)
    assert buffer.held.coordinates[:, :2].T.tolist() == frozen.tolist()


def test_an_empty_block_is_taken_and_leaves_no_trace() -> None:
    border = InputValidator(3, 0)
    empty = border.check(np.zeros((0, 3)), None, None, None)
    border.remember(empty, by_subject=False)
    assert border.last == -1
    assert border.check(np.zeros((1, 3)), np.array([5]), None, None).positions.tolist() == [0]


def test_positions_are_numbered_from_the_last_on_and_stand_for_subjects() -> None:
    border = InputValidator(1, 0)
    border.remember(border.check(np.zeros((1, 1)), None, np.array([7]), None), by_subject=False)
    checked = border.check(np.zeros((2, 1)), None, None, None)
    assert checked.positions.tolist() == checked.subjects.tolist() == [8, 9]
    assert checked.marks.shape == (2, 0)


@pytest.mark.parametrize(
    "subjects", [["a", "b", "a"], np.array(["a", "b", "a"]), np.array(["a", "b", "a"], dtype=object)]
)
def test_strings_are_numbered_as_they_come(subjects: Any) -> None:
    names = SubjectEncoder(10)
    assert names.codes(subjects, 3).tolist() == [0, 1, 0]
    names.keep(3)
    names.keep(0)
    assert names.codes(["c", "b"], 2).tolist() == [2, 1]


@pytest.mark.parametrize(
    "spellings",
    [
        ["7", "07", " 7\u00a0", "+7", "7.0", "70e-1", "7."],
        ["0", "-0", "0.00", "0e9", ".0"],
        ["a", "a ", "\ta"],
        ["é", "e\u0301"],
        ["-.5", "-0.50", "-5e-1"],
    ],
)
def test_all_spellings_of_a_person_have_one_code(spellings: list[str]) -> None:
    assert set(SubjectEncoder(10).codes(spellings, len(spellings)).tolist()) == {0}


def test_texts_that_are_not_the_same_value_are_different_people() -> None:
    people = [
        "7",
        "-7",
        "70",
        "7e",
        "0x7",
        "٧",
        "7_0",
        "1" * 40,
        "1" * 39 + "2",
        "A",
        "a",
        "1e-9",
        "1e9",
        "9" * 30 + "e" + "9" * 17,
    ]
    assert SubjectEncoder(99).codes(people, len(people)).tolist() == list(range(len(people)))


@pytest.mark.parametrize("subjects", [[5, -1], np.array([5, -1], np.int8), (5, -1)])
def test_integers_stand_for_themselves(subjects: Any) -> None:
    assert SubjectEncoder(10).codes(subjects, 2).tolist() == [5, -1]


@pytest.mark.parametrize(
    "subjects",
    [[1.0, 2.0], [True, False], ["a"], [["a", "b"]], np.array(["a", None], dtype=object), [b"a", b"b"], 5],
)
def test_anything_else_names_nobody(subjects: Any) -> None:
    with pytest.raises(ParameterError, match="subjects: must be integers or strings"):
        SubjectEncoder(10).codes(subjects, 2)


def test_strings_and_integers_do_not_mix() -> None:
    names = SubjectEncoder(10)
    names.codes(["a"], 1)
    names.codes([1], 1)  # what was refused later on leaves no trace
    names.keep(1)
    with pytest.raises(ParameterError, match="subjects: strings in this block, integers before"):
        names.codes(["a"], 1)


def test_a_string_keeps_its_code_while_it_may_be_held_and_memory_stays_bounded() -> None:
    names = SubjectEncoder(20)
    code_of: dict[str, int] = {}
    last_seen: dict[str, int] = {}
    random = np.random.default_rng(0)
    for start in range(0, 3000, 7):
        subjects = [f"{name}" for name in random.integers(start, start + 60, 7)]
        for rank, (subject, code) in enumerate(zip(subjects, names.codes(subjects, 7).tolist(), strict=True), start):
            if rank - last_seen.get(subject, -100) <= 20:
                assert code == code_of[subject]
            elif subject in code_of:
                assert code >= code_of[subject]
            code_of[subject], last_seen[subject] = code, rank
        names.keep(7)
    assert len(names._recent) + len(names._older) <= 2 * (20 + 7)
