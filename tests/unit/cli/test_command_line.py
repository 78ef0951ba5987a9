"""Options from the environment, misspelt variables, and how a command ends that nobody expected to end so."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from shoal.cli import main
from shoal.cli.command_line import COMMANDS, EXAMPLES, build_parser
from shoal.cli.options import VARIABLES, check_variables, option_variables, read_variables
from shoal.errors import ParameterError
from support.commands import run_command

pytestmark = pytest.mark.unit

CANARY = "xq7canary9z"
TOKEN = f"{CANARY}-0123456789"


def options_of(*arguments: str, **environment: str) -> argparse.Namespace:
    options = build_parser().parse_args(arguments)
    read_variables(options, environment)
    return options


def test_an_option_counts_before_its_variable_and_the_variable_before_the_default() -> None:
    environment = {
        "SHOAL_HTTP": "0.0.0.0:1",
        "SHOAL_LOG": "json",
        "SHOAL_LOG_LEVEL": "error",
        "SHOAL_FROM": "latest",
        "SHOAL_HTTP_TOKEN_FILE": "token",
    }
    given = ("--http", ":2", "--log", "text", "--log-level", "debug", "--from", "earliest")
    names = ("http", "log", "log_level", "reset", "http_token_file")
    usual = options_of("run", "p.yaml")
    assert [getattr(usual, name) for name in names] == ["127.0.0.1:9464", "text", "info", None, None]
    found = options_of("run", "p.yaml", **environment)
    assert [getattr(found, name) for name in names] == [*("0.0.0.0:1", "json", "error", "latest", "token")]
    named = options_of("run", "p.yaml", *given, "--http-token-file", "other", **environment)
    assert [getattr(named, name) for name in names] == [":2", "text", "debug", "earliest", "other"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_style_and_level_of_its_log_from_the_environment(name: str) -> None:
    parser = build_parser([name])
    found = {variable.name: variable.option for variable in option_variables(subparser(parser, name))}
    assert found["SHOAL_LOG"] == "--log"
    assert found["SHOAL_LOG_LEVEL"] == "--log-level"
    assert len(found) == {"run": 10, "check": 9}.get(name, 2)


def subparser(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    (actions,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    found = actions.choices[name]
    assert isinstance(found, argparse.ArgumentParser)
    return found


def test_the_help_names_the_variable_of_every_option() -> None:
    run = subparser(build_parser(["run"]), "run")
    text = " ".join(run.format_help().split())
    for variable in option_variables(run):
        assert not variable.option or f"(variable {variable.name}" in text, variable.name
    assert "(variable SHOAL_HTTP, default 127.0.0.1:9464)" in text


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("SHOAL_LOG", CANARY, "must be json or text"),
        ("SHOAL_LOG_LEVEL", CANARY, "must be debug, info, warning or error"),
        ("SHOAL_FROM", CANARY, "must be earliest or latest"),
        ("SHOAL_LOG", "", "must be json or text"),
        ("SHOAL_HTTP", "", "is empty; give a value, or unset the variable"),
        ("SHOAL_HTTP_TOKEN", "", "is empty; give a value, or unset the variable"),
        ("SHOAL_PRIVACY__K", CANARY, "variables can set settings of section kafka only; set privacy.k in the policy"),
    ],
)
def test_a_variable_that_cannot_be_used_is_a_usage_fault(variable: str, value: str, message: str) -> None:
    done = run_command("run", "no.yaml", environment={variable: value, "SHOAL_OTHER__K": "1"})
    assert done.returncode == 2
    assert done.stderr.decode().endswith(f"shoal run: error: {variable}: {message}\n")
    assert CANARY not in done.stderr.decode()


def test_the_command_line_replaces_an_invalid_variable(tmp_path: Path) -> None:
    done = run_command("check", str(tmp_path / "no.yaml"), "--log", "json", environment={"SHOAL_LOG": CANARY})
    said = json.loads(done.stderr)
    assert (said["level"], said["code"], said["event"]) == ("error", "input", "stopped")
    assert said["reason"] == f"{tmp_path}/no.yaml: cannot be read: No such file or directory"


POLICY = {
    "attributes": {"x": {"role": "quasi_identifier", "bounds": [0, 1]}},
    "subject": "every_record",
    "privacy": {"k": 2},
}


def policy_file(folder: Path, **more: object) -> str:
    path = folder / "policy.yaml"
    path.write_text(json.dumps(POLICY | more))
    return str(path)


def test_the_level_of_the_log_leaves_out_lines_below_it(tmp_path: Path) -> None:
    policy = policy_file(tmp_path)
    assert b"[warning" in run_command("check", policy).stderr
    assert b"[warning" in run_command("check", policy, environment={"SHOAL_LOG_LEVEL": "warning"}).stderr
    assert run_command("check", policy, environment={"SHOAL_LOG_LEVEL": "error"}).stderr == b""
    assert run_command("check", policy, "--log-level", "error").stderr == b""


KAFKA = {"bootstrap_servers": "127.0.0.1:1", "input": "a", "output": "b", "group": "g"}


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"SHOAL_HTTP": CANARY}, "--http (SHOAL_HTTP): give HOST:PORT"),
        ({"SHOAL_HTTP": "0.0.0.0:65536"}, "--http (SHOAL_HTTP): give HOST:PORT"),
        (
            {"SHOAL_HTTP_CERTFILE": "absent.pem", "SHOAL_HTTP_KEYFILE": "absent.key"},
            "--http-certfile (SHOAL_HTTP_CERTFILE): the file cannot be read",
        ),
        ({"SHOAL_HTTP_TOKEN": CANARY}, "SHOAL_HTTP_TOKEN: holds a token with fewer than 16 characters"),
        ({"SHOAL_HTTP_TOKEN": f"{TOKEN} é"}, "SHOAL_HTTP_TOKEN: holds a character that no bearer token has"),
    ],
)
@pytest.mark.parametrize("style", ["text", "json"])
def test_unusable_settings_of_the_http_port_end_the_service_at_once_and_check_names_them(
    tmp_path: Path, environment: Mapping[str, str], message: str, style: str
) -> None:
    policy = policy_file(tmp_path, stream={"delta": 2}, kafka=KAFKA)
    variables = {**environment, "SHOAL_LOG": style}
    checked, ran = (run_command(name, policy, environment=variables) for name in ("check", "run"))
    assert (checked.returncode, ran.returncode) == (0, 2)
    for done in (checked, ran):
        assert message in done.stderr.decode()
        assert CANARY not in (done.stderr + done.stdout).decode()
    assert "shoal run refuses this where it runs" in checked.stderr.decode()
    assert "can be read by other machines" not in ran.stderr.decode()


# ---------------------------------------------------------------- misspelt variables


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_command_can_be_parsed(name: str) -> None:
    words = EXAMPLES[name].split(" > ")[0].split()
    assert words[:2] == ["shoal", name]
    assert build_parser([name]).parse_args(words[1:]).command == name
    assert EXAMPLES[name] in subparser(build_parser(), name).format_help().splitlines()[-1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_options_and_files(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)
    assert "evidence" in script
    if shell == "bash":
        checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_the_variables_of_all_commands_are_known() -> None:
    parsers = [subparser(build_parser(), name) for name in COMMANDS]
    assert set(VARIABLES) == {one.name for parser in parsers for one in option_variables(parser)}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SHOAL_HTTP_TOKENFILE", "SHOAL_HTTP_TOKEN_FILE"),
        ("SHOAL_HTTP_CERT_FILE", "SHOAL_HTTP_CERTFILE"),
        ("SHOAL_LOGLEVEL", "SHOAL_LOG_LEVEL"),
        ("SHOAL_FORM", "SHOAL_FROM"),
        ("SHOAL_KAFKA_GROUP", "SHOAL_KAFKA__GROUP"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_one_that_is_meant(name: str, meant: str) -> None:
    with pytest.raises(ParameterError) as caught:
        check_variables({name: "canary"})
    assert str(caught.value) == f"{name}: unknown variable; did you mean {meant}?"


@pytest.mark.parametrize("name", ["SHOAL_TEST_BROKER", "SHOAL_DATA", "SHOAL_VERSION", "SHOAL_KAFKA__GROUP", "SHOALS"])
def test_a_variable_that_resembles_none_is_left_alone_and_all_others_are_named(name: str) -> None:
    check_variables({name: "x"})
    with pytest.raises(ParameterError, match=r"(?s)SHOAL_FORM.*SHOAL_LOGS"):
        check_variables({"SHOAL_LOGS": "", "SHOAL_FORM": "", name: "x"})


@pytest.mark.parametrize("service", ["SHOAL", "SHOAL_KAFKA", "SHOAL_HTTP"])
def test_the_variables_of_a_service_in_kubernetes_are_left_alone_beside_its_host(service: str) -> None:
    endings = ("_SERVICE_HOST", "_SERVICE_PORT", "_SERVICE_PORT_HTTP", "_PORT", "_PORT_9464_TCP", "_PORT_9464_TCP_ADDR")
    check_variables({service + ending: "10.0.0.1" for ending in endings})
    with pytest.raises(ParameterError, match="SHOAL_KAFKA_PORT: unknown variable; did you mean SHOAL_KAFKA__PORT"):
        check_variables({"SHOAL_KAFKA_PORT": "9464"})


# ---------------------------------------------------------------- errors that nobody expected


def test_an_unexpected_error_says_what_holds_for_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise RuntimeError("canary")

    monkeypatch.setattr("shoal.cli.schema.execute", fail)
    assert main(["schema"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("shoal: unexpected RuntimeError")
    assert told.endswith(": outputs that are written as a whole were not changed\n")
    assert "canary" not in told


def test_the_variables_of_another_command_are_not_read(tmp_path: Path) -> None:
    done = run_command("check", str(tmp_path / "no.yaml"), environment={"SHOAL_FROM": CANARY})
    assert done.stderr.decode().startswith(f"shoal: {tmp_path}/no.yaml: cannot be read")
