"""Write docs/commands.md: the text of docs/commands.template, with lists made of the parsers of the commands."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from shoal.cli.command_line import COMMANDS, build_parser
from shoal.cli.options import OptionVariable, option_variables
from support.policy_page import item

ROOT = Path(__file__).resolve().parents[2]
PAGE, TEMPLATE = ROOT / "docs" / "commands.md", ROOT / "docs" / "commands.template"
DIRECTIVE = re.compile(r"^\{\{ (\w+) \}\}$", re.MULTILINE)
"""``{{ commands }}``, ``{{ common }}``, or ``{{ NAME }}`` with the name of a command."""
CODE = re.compile(
    r"`[^`]*`|(?<![\w-])--[a-z-]+|(?<=; )-(?= )|\.(?:csv|jsonl|parquet)\b|SHOAL_[A-Z_]+"
    r"|\bkafka\.\w+|\bpublish_unchanged: true|\bshoal (?:batch|run)\b|\bvalue,share\b"
)
"""What is marked as code in a help text."""
COMMON = ("log", "log_level")
"""Attributes of the options that every command has; the page shows them once."""


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command, by name."""
    (commands,) = [action for action in build_parser()._actions if isinstance(action.choices, dict)]
    assert commands.choices is not None
    found = dict(commands.choices)
    return {name: found[name] for name in COMMANDS}


def page() -> str:
    of = parsers()
    shown: list[str] = []

    def part(found: re.Match[str]) -> str:
        name = found[1]
        shown.append(name)
        if name == "commands":
            return "\n".join(map(summary_item, of, of.values()))
        if name == "common":
            return items(next(iter(of.values())), is_common=True)
        return f"{of[name].description}\n\n`{usage(of[name])}`\n\n{items(of[name], is_common=False)}".rstrip("\n")

    text = DIRECTIVE.sub(part, TEMPLATE.read_text(encoding="utf-8"))
    if sorted(shown) != sorted(["commands", "common", *of]):
        raise ValueError(f"{sorted(set(shown) ^ {'commands', 'common', *of})} missing, or one is there twice")
    return text


def summary_item(name: str, parser: argparse.ArgumentParser) -> str:
    return item([f"[`{name}`](#shoal-{name})"], "", str(parser.description))


def usage(parser: argparse.ArgumentParser) -> str:
    """Return the command with its arguments; options that are required are named, others are not."""
    words = [parser.prog]
    for action in actions_of(parser, is_common=False):
        if not action.option_strings:
            words.append(f"[{action.metavar}]" if action.nargs == "?" else str(action.metavar))
        elif action.required:
            words.append(f"{action.option_strings[-1]} {action.metavar}")
    has_others = any(action.option_strings and not action.required for action in actions_of(parser, is_common=False))
    return " ".join([*words, *(["[OPTIONS]"] if has_others else [])])


def items(parser: argparse.ArgumentParser, *, is_common: bool) -> str:
    return "\n".join(option_items(parser, is_common=is_common))


def option_items(parser: argparse.ArgumentParser, *, is_common: bool) -> Iterator[str]:
    variables = {variable.dest: variable for variable in option_variables(parser)}
    for action in actions_of(parser, is_common=is_common):
        if action.option_strings:
            names = [*map(code, action.option_strings[:-1]), code(f"{action.option_strings[-1]}{value_of(action)}")]
            variable = variables.get(action.dest)
            if variable is not None:
                names.append(code(variable.name))
            yield item(names, "", "; ".join([meaning_of(parser, action, variable), *default_of(action, variable)]))
    for variable in variables.values():
        if not variable.option and not is_common:
            yield item([code(variable.name)], "", with_code(variable.meaning))


def actions_of(parser: argparse.ArgumentParser, *, is_common: bool) -> list[argparse.Action]:
    return [action for action in parser._actions if action.dest != "help" and (action.dest in COMMON) == is_common]


def code(text: str) -> str:
    return f"`{text}`"


def value_of(action: argparse.Action) -> str:
    if action.choices is not None:
        return " " + "|".join(map(str, action.choices))
    return "" if action.nargs == 0 else f" {action.metavar}"


def default_of(action: argparse.Action, variable: OptionVariable | None) -> Iterator[str]:
    """Yield the default in words, or nothing if there is none."""
    default = action.default if variable is None else variable.default
    if action.required:
        yield "required"
    elif action.nargs != 0 and default is not None and default != []:
        yield f"default {code(str(default))}"


def meaning_of(parser: argparse.ArgumentParser, action: argparse.Action, variable: OptionVariable | None) -> str:
    """Return the help text, and which options exclude this one."""
    text = with_code(str(action.help).replace("%%", "%") if variable is None else variable.meaning)
    for group in parser._mutually_exclusive_groups:
        if action in group._group_actions:
            others = [code(other.option_strings[-1]) for other in group._group_actions if other is not action]
            text += f"; not together with {' or '.join(others)}"
    return text


def with_code(text: str) -> str:
    """Return a help text with options, suffixes, variables and keys marked as code."""
    return CODE.sub(lambda found: code(found[0].strip("`")), text)


def main() -> int:
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
