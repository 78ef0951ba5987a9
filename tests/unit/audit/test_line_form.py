"""All lines of an exported release are written in one form of JSON."""

from __future__ import annotations

from pathlib import Path

import pytest
from shoal.audit.reading import LineForm
from shoal.errors import InputError

pytestmark = pytest.mark.unit

FORMS = (
    ('{"partition":0,"value":"é"}', '{"partition":1,"value":"ü"}'),
    ('{"partition":0,"value":"\\u00e9"}', '{"partition":1,"value":"\\u00fc"}'),
    ('{"partition": 0, "value": "é"}', '{"partition": 1, "value": "ü"}'),
    ('{"partition": 0, "value": "\\u00e9"}', '{"partition": 1, "value": "\\u00fc"}'),
    # Without letters beyond ASCII the first line has two forms. The second decides.
    ('{"partition":0,"value":"e"}', '{"partition":1,"value":"\\u00fc"}'),
    ('{"value":"e","partition":0}', '{"value":"u","partition":1}'),
)
WITH_HEADERS = '{"partition":0,"value":"","key":%s,"headers":%s}'


def check(*lines: str) -> None:
    form = LineForm(Path("released.jsonl"), frozenset({"key", "headers"}))
    for number, line in enumerate(lines, 1):
        form.check(number, line)


@pytest.mark.parametrize("lines", FORMS)
def test_lines_of_one_json_writer_are_accepted(lines: tuple[str, str]) -> None:
    check(*lines)
    check(*lines[::-1], *lines)


@pytest.mark.parametrize(
    "line",
    [
        '{"partition":0, "value":"x"}',
        '{"partition" : 0,"value":"x"}',
        ' {"partition":0,"value":"x"}',
        '{"partition":0,"value":"x"} ',
        '{"partition":0,"value":"\\u0078"}',
        '{"partition":0,"value":"é\\u00fc"}',
        '{"partition":0,"value":"\\/"}',
        '{"partition":0,"value":"\\u00E9"}',
        '{"partition":0e0,"value":"x"}',
    ],
)
def test_a_first_line_that_no_json_writer_writes_is_an_error(line: str) -> None:
    with pytest.raises(InputError) as error:
        check(line)
    assert str(error.value) == (
        "released.jsonl, line 1: written in another way than json.dumps or jq -c writes it (blanks, escapes, order, "
        "null or []); export again, all lines with one JSON writer"
    )


@pytest.mark.parametrize(
    ("lines", "number"),
    [
        (('{"partition":0,"value":"x"}', '{"partition": 0, "value": "x"}'), 2),
        (('{"partition":0,"value":"x"}', '{"value":"x","partition":0}'), 2),
        (('{"partition":0,"value":"x"}', '{"partition":0}'), 2),
        (('{"partition":0,"value":"é"}', '{"partition":0,"value":"x"}', '{"partition":0,"value":"\\u00e9"}'), 3),
    ],
)
def test_a_line_in_another_form_than_those_before_it_is_an_error(lines: tuple[str, ...], number: int) -> None:
    with pytest.raises(InputError, match=f"line {number}: written in another way than the lines before it") as error:
        check(*lines)
    assert "x" not in str(error.value).replace("export", "")


@pytest.mark.parametrize("empty", ["null", "[]", "{}"])
def test_an_empty_field_of_the_envelope_is_written_in_one_way(empty: str) -> None:
    check(WITH_HEADERS % ("null", empty), WITH_HEADERS % ("null", empty))
    for other in {"null", "[]", "{}"} - {empty}:
        with pytest.raises(InputError, match="line 2: written in another way than the lines before it"):
            check(WITH_HEADERS % ("null", empty), WITH_HEADERS % ("null", other))


def test_an_empty_field_is_written_as_the_last_empty_one_was() -> None:
    lines = [WITH_HEADERS % one for one in (("null", "[]"), ('"k"', '[["h","1"]]'), ("null", "[]"), ("null", "null"))]
    check(*lines[:3])
    with pytest.raises(InputError, match="line 4"):
        check(*lines)


def test_an_empty_field_outside_the_envelope_may_be_written_in_any_way() -> None:
    check('{"partition":0,"value":null}', '{"partition":0,"value":[]}')


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 200_000 + "]" * 200_000])
def test_a_line_that_python_cannot_convert_is_refused(value: str) -> None:
    with pytest.raises(InputError, match="line 1: a number is too long, or values are nested too deeply"):
        check(f'{{"partition":0,"value":{value}}}')
