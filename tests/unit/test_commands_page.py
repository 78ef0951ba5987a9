"""The page on the commands is made of their parsers and a template, and is not out of date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from shoal.cli.command_line import COMMANDS, build_parser
from support import commands_page
from support.commands_page import PAGE, items, page, parsers, usage

pytestmark = pytest.mark.unit


def test_the_page_is_what_the_command_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "out of date: make commands-page"


def test_the_page_shows_each_command_that_the_help_lists() -> None:
    listed = re.findall(r"^    (\w+)\b", build_parser().format_help(), re.MULTILINE)
    assert set(COMMANDS) == set(listed)
    shown = re.findall(r"^## shoal (\w+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted([*shown, "tune"]) == sorted(listed)  # the help says that it is not available


def test_each_command_has_an_example_that_its_parser_reads_and_its_exit_codes() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in parsers():
        part = text.split(f"\n## shoal {name}\n", 1)[1].split("\n## ", 1)[0]
        (example,) = re.findall(r"```sh\nshoal (.*)\n```", part)
        arguments = example.split(" > ")[0].split()
        assert build_parser().parse_args(arguments).command == name
        assert re.search(r"\n\nExit codes?: 0", part)


def test_a_command_that_is_missing_or_there_twice_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template = tmp_path / "template"
    monkeypatch.setattr(commands_page, "TEMPLATE", template)
    whole = "\n\n".join(f"{{{{ {name} }}}}" for name in ("commands", "common", *parsers()))
    for text, fault in (
        (whole.replace("{{ warm }}", ""), r"\['warm'\] missing"),
        (f"{whole}\n\n{{{{ warm }}}}", r"\[\] missing, or one is there twice"),
    ):
        template.write_text(text)
        with pytest.raises(ValueError, match=fault):
            page()


def test_a_list_has_values_defaults_variables_and_what_excludes_an_option() -> None:
    run = items(parsers()["run"], is_common=False)
    assert run.startswith(
        "- `--from earliest|latest`, `SHOAL_FROM`: where a partition without committed progress begins; committed "
        "progress always\n  wins\n"
        "- `--http HOST:PORT`, `SHOAL_HTTP`: address of metrics and probes; default `127.0.0.1:9464`\n"
    )
    assert items(parsers()["progress"], is_common=False).startswith(
        "- `--export FILE`: write the progress of all partitions to a file; not together with `--import`\n"
    )
    batch = items(parsers()["batch"], is_common=False)
    assert batch.startswith(
        "- `-i`, `--input FILE`: `.csv`, `.jsonl` or `.parquet`; `-` is standard input; default `-`\n"
    )
    assert batch.endswith(
        "\n- `--keep-order`: rows in the order of the input, not of their bytes\n"
        "- `--seed N`: seed of all random numbers; default `0`"
    )
    assert items(parsers()["schema"], is_common=False) == ""


def test_the_usage_names_arguments_and_required_options() -> None:
    of = parsers()
    assert usage(of["verify"]) == "shoal verify POLICY --original FILE --released FILE [OPTIONS]"
    assert usage(of["warm"]) == "shoal warm [POLICY]"
    assert usage(of["schema"]) == "shoal schema"
