"""The files of references: what is read, and which faults are told, with the line of the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from shoal.formats import ReferenceBins
from shoal.policy import Policy
from support.policy_files import faults, load

pytestmark = pytest.mark.unit

TEXT = """\
attributes:
  age: {{role: quasi_identifier, bounds: [0, 110]}}
  ill: {{role: confidential, {options}reference: ill.csv}}
subject: every_record
privacy: {{k: 5, t: 0.2}}
missing_values: ["", "-"]
"""


def read(folder: Path, content: bytes | str, options: str = "") -> Policy:
    (folder / "ill.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    return load(TEXT.format(options=options), folder)


def fault(folder: Path, content: bytes | str, options: str = "") -> list[str]:
    (folder / "ill.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    found = faults(TEXT.format(options=options), folder)
    assert list(found) == ["attributes.ill.reference"]
    assert found["attributes.ill.reference"][0] == 3
    return [found["attributes.ill.reference"][1]]


def test_values_and_shares_are_read(tmp_path: Path) -> None:
    reference = read(tmp_path, 'value,share\n flu ,0.5\n"a, b",2.5e-1\n,0.25\n').confidential[0].reference
    assert reference is not None
    assert reference.texts == ("flu", "a, b", None)
    assert reference.shares == (0.5, 0.25, 0.25)


@pytest.mark.parametrize(
    ("text", "distance"), [("1e300", "ordered"), ("1e5000", "equal"), ("1e9999999999999999999", "equal")]
)
def test_a_reference_of_any_type_is_ordered_if_all_its_values_are_finite_numbers(
    text: str, distance: str, tmp_path: Path
) -> None:
    policy = read(tmp_path, f"value,share\n1,0.5\n{text},0.5\n")
    assert policy.confidential[0].distance == distance
    bins = ReferenceBins(policy.confidential[0], policy.missing_values)
    assert [bins.bin_of(key) for key in ("1", "2")] == [0, 0 if distance == "ordered" else 2]


def test_shares_are_divided_by_their_sum(tmp_path: Path) -> None:
    reference = read(tmp_path, "value,share\na,0.3333333\nb,0.3333333\nc,0.3333333\n").confidential[0].reference
    assert reference is not None
    assert sum(reference.shares) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("valu,share\na,1\n", "line 1: must be the header value,share; did you mean value?"),
        ("flu,0.5\ncold,0.5\n", "line 1: must be the header value,share"),
        ("value,share\nflu\n", "line 2: has one cell"),
        ("value,share\na,b,0.5\nc,0.5\n", "line 2: has 3 cells"),
        ("value,share\na,0.5\n\nb,half\n", "line 4: the share must be a number"),
        ("value,share\na,50%\nb,50%\n", "not a percentage"),
        ("value;share\na;0,5\nb;0,5\n", "with a point and no comma"),
        ("value,share\na,0.5\nb,-0.5\n", "line 3: the share must be from 0 to 1"),
        ("value,share\na,NaN\nb,1\n", "line 2: the share must be a number"),
        ("value,share\na,0.5\nb,0.3\n", "add up to 1 within 1e-06, and add up to 0.8"),
        ("value,share\na,0.5\nb,0\n a ,0.5\n", "line 4: the value occurs twice, also in line 2"),
        ("value,share\na,0.5\n,0.25\n-,0.25\n", "line 4: the missing value occurs twice, also in line 3"),
        ("value,share\n1,0.5\n1.0,0.5\n", "line 3: the value occurs twice"),
        ("value,share\na,1\nb,0\n", "at least two values"),
        ('value,share\n"a,0.5\nb,0.5\n', "a quotation mark is missing"),
        (b"value,share\n\xff,0.5\nb,0.5\n", "line 2: not UTF-8"),
        (f"value,share\n{'x' * 1001},0.5\nb,0.5\n", "line 2: the value has more than 1,000 bytes"),
    ],
)
def test_a_fault_names_the_line_of_the_file(content: bytes | str, words: str, tmp_path: Path) -> None:
    assert words in fault(tmp_path, content)[0]


@pytest.mark.parametrize(
    ("options", "content", "words"),
    [
        ("type: integer, ", "value,share\n1,0.5\n2.5,0.5\n", "line 3: the value must be a whole number"),
        ("type: number, ", "value,share\n1,0.5\nhigh,0.5\n", "line 3: the value must be a number"),
        ("type: number, ", "value,share\n1,0.5\n1e999,0.5\n", "line 3: the value must be a number"),
        ("type: boolean, ", "value,share\ntrue,0.5\nno,0.5\n", "line 3: the value must be true or false"),
        ("type: boolean, ", "value,share\ntrue,0.5\nTRUE,0.5\n", "line 3: the value occurs twice"),
        ("type: json, ", "value,share\n[1],0.5\n[,0.5\n", "line 3: the value must be JSON"),
        ("type: string, ", "value,share\nflu,0.5\nflu\u200b,0.5\n", "line 3: the value occurs twice"),
        ("type: any, ", "value,share\n1,0.5\n\uff11,0.5\n", "line 3: the value occurs twice"),
        ("type: string, ", "value,share\n,0.5\n\u200b,0.5\n", "line 3: the missing value occurs twice"),
        (
            "type: json, ",
            'value;share\n{"a":1,"b":" x"};0.5\n{"b":"x","a":1e0};0.5\n',
            "line 3: the value occurs twice",
        ),
        ("scale: ordinal, order: [low, high], ", "value,share\nlow,0.5\nhgih,0.5\n", "line 3: the value is not in the"),
    ],
)
def test_a_value_that_no_record_can_have_is_a_fault(options: str, content: str, words: str, tmp_path: Path) -> None:
    assert words in fault(tmp_path, content, options)[0]


def test_an_absent_file_is_a_fault_at_the_line_of_the_policy(tmp_path: Path) -> None:
    found = faults(TEXT.format(options=""), tmp_path)
    assert found["attributes.ill.reference"] == (
        3,
        "ill.csv: no such file; its path is relative to the folder of the policy",
    )


def test_no_message_contains_a_value_or_a_share(tmp_path: Path) -> None:
    for content in ("value,share\nZEBRA,0.77123\nZEBRA,0.77123\n", "value,share\nZEBRA,77123\n", "ZEBRA,0.77123\n"):
        told = fault(tmp_path, content)[0]
        assert "ZEBRA" not in told
        assert "77123" not in told


def test_few_faults_of_one_file_are_told(tmp_path: Path) -> None:
    rows = "".join(f"{number},x\n" for number in range(50))
    (tmp_path / "ill.csv").write_text(f"value,share\n{rows}")
    with pytest.raises(Exception, match=r"ill\.csv") as caught:
        load(TEXT.format(options=""), tmp_path)
    assert str(caught.value).count("ill.csv line") == 5
