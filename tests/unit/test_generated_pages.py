"""The pages on policy and commands are made of schema, parsers and templates, and are not out of date."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from shoal.cli.command_line import COMMANDS, build_parser
from shoal.policy.schema import KafkaSection, policy_schema
from support import commands_page, policy_page

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("made", [policy_page, commands_page])
def test_a_page_is_what_its_command_writes(made: ModuleType) -> None:
    assert made.PAGE.read_text(encoding="utf-8") == made.page(), "out of date: make policy-page, or commands-page"


def test_each_command_that_the_help_lists_has_an_example_that_its_parser_reads_and_its_exit_codes() -> None:
    listed = re.findall(r"^    (\w+)\b", build_parser().format_help(), re.MULTILINE)
    assert set(COMMANDS) == set(listed)
    text = commands_page.PAGE.read_text(encoding="utf-8")
    shown = re.findall(r"^## shoal (\w+)$", text, re.MULTILINE)
    assert sorted(shown) == sorted(listed)
    for name in commands_page.parsers():
        part = text.split(f"\n## shoal {name}\n", 1)[1].split("\n## ", 1)[0]
        (example,) = re.findall(r"```sh\nshoal (.*)\n```", part)
        arguments = example.split(" > ")[0].split()
        assert build_parser().parse_args(arguments).command == name
        assert re.search(r"\n\nExit codes?: 0", part)


def test_every_variable_of_the_connection_is_on_the_page() -> None:
    listed = set(re.findall(r"`(SHOAL_KAFKA__[A-Z_]+)`", policy_page.PAGE.read_text(encoding="utf-8")))
    assert listed == {f"SHOAL_KAFKA__{name.upper()}" for name in KafkaSection.model_fields}


def test_every_example_is_a_value_of_its_key() -> None:
    schema = policy_schema()
    wrong, count = [], 0
    for section in (schema, *schema["$defs"].values()):
        for name, part in section["properties"].items():
            checked: dict[str, Any] = {**part, "$defs": schema["$defs"]}
            for example in part.get("examples", ()):
                count += 1
                wrong += [f"{name}: {error.message}" for error in Draft202012Validator(checked).iter_errors(example)]
    assert wrong == []
    assert count > 50
