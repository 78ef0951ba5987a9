from __future__ import annotations

import json

import numpy as np
import pytest
from shoal.records import CsvCells, CsvDecoder, CsvEncoder, Encoder, JsonDecoder, Reason
from support.making import KEY, SUBJECT, kept, policy_of, quasi, usual_policy

pytestmark = pytest.mark.unit

UNDECODABLE, INVALID, TOO_LARGE = Reason.UNDECODABLE, Reason.INVALID, Reason.TOO_LARGE
GOOD = ["p1", "t1", "42", "1234.5", "flu", "7"]


def changed(place: int, cell: str) -> CsvCells:
    return [*GOOD[:place], cell, *GOOD[place + 1 :]]


def test_cells_become_the_same_arrays_as_json() -> None:
    policy = policy_of({"who": SUBJECT, "age": quasi(0, 110, integer=True), "n": kept("number"), "t": kept("string")})
    cells = [["007", " 42", "1.50", "x"], ["7 ", "120", "", ""]]
    records = [b'{"who":7,"age":42,"n":1.5,"t":"x"}', b'{"who":"7","age":120,"n":null,"t":""}']
    encoder = Encoder(policy)
    left = CsvDecoder(policy, encoder=encoder, hash_key=KEY).take(cells)
    right = JsonDecoder(policy, encoder=encoder, hash_key=KEY).take(records)
    np.testing.assert_array_equal(left.values, right.values)
    np.testing.assert_array_equal(left.subjects, right.subjects)
    np.testing.assert_array_equal(left.index, right.index)
    assert left.tails == right.tails == [b'"n":1.5,"t":"x"', b'"n":null,"t":""']
    assert left.clipped == right.clipped == 1


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (None, UNDECODABLE),
        ([], INVALID),
        (GOOD[:-1], INVALID),
        ([*GOOD, ""], INVALID),
        (changed(0, ""), INVALID),
        (changed(0, " \u2003"), INVALID),
        (changed(2, ""), INVALID),
        (changed(2, "42.5"), INVALID),
        (changed(2, "nan"), INVALID),
        (changed(3, "1_000"), INVALID),
        (changed(3, "0x1"), INVALID),
        (changed(3, "１"), INVALID),
        (changed(3, "1e400"), INVALID),
        (changed(4, "x" * 2000), TOO_LARGE),
    ],
)
def test_a_bad_record_costs_nothing_to_the_others(cells: CsvCells, reason: Reason) -> None:
    block = CsvDecoder(usual_policy(), max_bytes=1000).take([GOOD, cells, GOOD, GOOD, cells])
    assert block.index.tolist() == [0, 2, 3]
    assert block.rejected == [(1, reason), (4, reason)]
    assert block.values.tolist() == [[42.0, 1234.5]] * 3
    assert block.tails == [b"flu,7"] * 3


@pytest.mark.parametrize(("place", "cell"), [(1, ""), (1, "x" * 5000), (2, "42.0"), (2, "4.2e1"), (4, ""), (5, "")])
def test_what_may_stand_in_a_cell(place: int, cell: str) -> None:
    assert len(CsvDecoder(usual_policy(), max_bytes=1000).take([changed(place, cell)])) == 1


def test_kept_cells_that_do_not_fit_are_invalid() -> None:
    policy = policy_of({"x": quasi(), "n": kept("integer"), "b": kept("boolean"), "s": kept("any")})
    cells: list[CsvCells] = [["1", "1", "true", "a"], ["1", "1.5", "", "b"], ["1", "", "yes", "c"], ["1", "", "", "d"]]
    block = CsvDecoder(policy).take(cells)
    assert block.rejected == [(1, INVALID), (2, INVALID)]
    assert block.tails == [b"1,true,a", b",,d"]


def test_columns_are_found_by_their_names() -> None:
    policy = policy_of({"x": quasi(), "y": kept(), "who": SUBJECT}, undeclared="drop")
    decoder = CsvDecoder(policy, ["more", "who", "y", "x"], hash_key=KEY)
    block = decoder.take([["?", "p", "kept", "5"]])
    assert block.values.tolist() == [[5.0]]
    assert block.tails == [b"kept"]
    assert block.subjects == CsvDecoder(policy, hash_key=KEY).take([["5", "kept", "p"]]).subjects


def test_nothing_and_nothing_good() -> None:
    nothing: list[list[CsvCells]] = [[], [None, []]]
    for cells in nothing:
        block = CsvDecoder(usual_policy()).take(cells)
        assert block.values.shape == (0, 2)
        assert len(block) == len(block.subjects) == 0
        assert [place for place, _ in block.rejected] == list(range(len(cells)))


def test_long_input_is_cut_and_put_together() -> None:
    block = CsvDecoder(usual_policy()).take([GOOD, None] * 700)
    assert block.index.tolist() == list(range(0, 1400, 2))
    assert block.rejected == [(place, UNDECODABLE) for place in range(1, 1400, 2)]


def test_files_of_one_form_become_files_of_the_other() -> None:
    policy = policy_of({"t": kept("string"), "x": quasi(), "n": kept("number"), "b": kept("boolean"), "a": kept()})
    cells: list[CsvCells] = [['say "hi",\nyou', "1", "1.50", "true", "007"], ["", "2", "", "", ""]]
    to_json, to_csv = Encoder(policy), CsvEncoder(policy)
    tails = CsvDecoder(policy, encoder=to_json).take(cells).tails
    rows = to_json.rows([["1.5"]], tails, [0, 2])
    assert sorted(json.loads(row)["a"] for row in rows) == ["", "007"]
    assert {"t": "", "x": 1.5, "n": None, "b": None, "a": ""} in map(json.loads, rows)
    back = JsonDecoder(policy, encoder=to_csv).take([row.replace(b'"x":1.5', b'"x":1') for row in rows]).tails
    assert to_csv.rows([["2"]], back, [0, 2]) == [b'"say ""hi"",\nyou",2,1.5,true,007', b",2,,,"]
    assert to_csv.rows([["2"]], CsvDecoder(policy).take(cells).tails, [0, 2]) == to_csv.rows([["2"]], back, [0, 2])
