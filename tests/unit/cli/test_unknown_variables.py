"""Misspelt variables of options are refused, and those of others are left alone."""

from __future__ import annotations

import argparse

import pytest
from shoal.cli.command_line import COMMANDS, build_parser
from shoal.cli.options import VARIABLES, check_variables, option_variables
from shoal.errors import ParameterError
from support.commands import run_command

pytestmark = pytest.mark.unit


def test_the_variables_of_all_commands_are_known() -> None:
    (actions,) = [one for one in build_parser(COMMANDS)._actions if isinstance(one, argparse._SubParsersAction)]
    assert set(VARIABLES) == {one.name for parser in actions.choices.values() for one in option_variables(parser)}


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


def test_all_misspelt_variables_are_named() -> None:
    with pytest.raises(ParameterError, match=r"(?s)SHOAL_FORM.*SHOAL_LOGS"):
        check_variables({"SHOAL_LOGS": "", "SHOAL_FORM": ""})


@pytest.mark.parametrize("name", ["SHOAL_TEST_BROKER", "SHOAL_DATA", "SHOAL_VERSION", "SHOAL_KAFKA__GROUP", "SHOALS"])
def test_a_variable_that_resembles_none_is_left_alone(name: str) -> None:
    check_variables({name: "x"})


@pytest.mark.parametrize("service", ["SHOAL", "SHOAL_KAFKA", "SHOAL_HTTP"])
def test_the_variables_of_a_service_in_kubernetes_are_left_alone(service: str) -> None:
    endings = ("_SERVICE_HOST", "_SERVICE_PORT", "_SERVICE_PORT_HTTP", "_PORT", "_PORT_9464_TCP", "_PORT_9464_TCP_ADDR")
    check_variables({service + ending: "10.0.0.1" for ending in endings})


def test_without_the_host_of_a_service_its_other_variables_are_misspelt() -> None:
    with pytest.raises(ParameterError, match="SHOAL_KAFKA_PORT: unknown variable; did you mean SHOAL_KAFKA__PORT"):
        check_variables({"SHOAL_KAFKA_PORT": "9464"})


def test_a_command_with_a_misspelt_variable_does_not_begin() -> None:
    done = run_command("run", "no.yaml", environment={"SHOAL_HTTP_TOKENFILE": "canary"})
    assert done.returncode == 2
    said = done.stderr.decode()
    assert said.endswith(
        "shoal run: error: SHOAL_HTTP_TOKENFILE: unknown variable; did you mean SHOAL_HTTP_TOKEN_FILE?\n"
    )
    assert "canary" not in said


def test_a_variable_for_another_section_of_the_policy_is_refused() -> None:
    done = run_command("check", "no.yaml", environment={"SHOAL_PRIVACY__K": "canary", "SHOAL_OTHER__K": "1"})
    assert done.returncode == 2
    said = done.stderr.decode()
    assert said.endswith(
        "error: SHOAL_PRIVACY__K: variables can set settings of section kafka only; set privacy.k in the policy\n"
    )
    assert "canary" not in said
