"""The systemd unit: what keeps records inside, how it restarts, and that its settings exist."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from pathlib import Path

import pytest
from shoal.cli.command_line import build_parser
from shoal.cli.options import option_variables
from shoal.policy import KafkaSection

pytestmark = pytest.mark.unit

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
OF_RUN = {variable.name for variable in option_variables(build_parser(["run"]).parse_args(["run", "p"]).parser)}


def settings(name: str) -> dict[str, list[str]]:
    """Values of each key in order; a unit may have a key more than once."""
    found = defaultdict(list)
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found[key].append(value)
    return found


@pytest.fixture(scope="module")
def unit() -> dict[str, list[str]]:
    return settings("shoal@.service")


def test_the_command_of_the_unit_is_one_of_the_command_line(unit: dict[str, list[str]]) -> None:
    (command,) = unit["ExecStart"]
    program, *arguments = shlex.split(command)
    assert program == "/opt/shoal/bin/shoal"
    assert build_parser().parse_args(arguments).command == "run"


def test_every_variable_is_a_setting(unit: dict[str, list[str]]) -> None:
    lines = [*unit["Environment"], *settings("sasl.conf")["Environment"]]
    example = (FOLDER / "environment.example").read_text(encoding="utf-8")
    lines += re.findall(r"^#?(\w+=.*)$", example, re.MULTILINE)
    lines += re.findall(r"^#Environment=(.*)$", (FOLDER / "sasl.conf").read_text(encoding="utf-8"), re.MULTILINE)
    names = {line.partition("=")[0] for line in lines}
    of_kafka = {f"SHOAL_KAFKA__{name.upper()}" for name in KafkaSection.model_fields}
    assert len(names) > 10
    assert names - of_kafka - OF_RUN == {"NUMBA_CPU_NAME", "XDG_CACHE_HOME"}
    assert not {name for name in names if name.endswith(("PASSWORD", "TOKEN", "KEY"))}, "secrets come from files"


def test_every_credential_is_passed_as_a_file() -> None:
    text = (FOLDER / "sasl.conf").read_text(encoding="utf-8")
    given = re.findall(r"^#?LoadCredential=([\w-]+):/etc/shoal/[\w-]+$", text, re.MULTILINE)
    assert given == ["sasl-password", "metadata-key", "http-token", "http-cert", "http-key"]
    assert re.findall(r"^#?Environment=SHOAL_\w+FILE=%d/([\w-]+)$", text, re.MULTILINE) == given


def test_a_worker_that_needs_a_person_is_not_started_again_and_instances_differ(unit: dict[str, list[str]]) -> None:
    names = ("Restart", "RestartPreventExitStatus", "TimeoutStopSec", "Type")
    assert [unit[name] for name in names] == [["on-failure"], ["1 2"], ["30s"], ["exec"]]
    assert {"SHOAL_KAFKA__INSTANCE_ID=%H-%i", "SHOAL_HTTP=127.0.0.1:946%i"} <= set(unit["Environment"])


def test_records_leave_by_the_network_alone_and_code_changes_nothing(unit: dict[str, list[str]]) -> None:
    wanted = {
        "CapabilityBoundingSet": "",
        "DynamicUser": "yes",
        "LimitCORE": "0",
        "MemoryDenyWriteExecute": "no",
        "MemorySwapMax": "0",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
        "UMask": "0077",
    }
    assert {name: unit[name] for name in wanted} == {name: [value] for name, value in wanted.items()}
    assert unit["SystemCallFilter"] == ["@system-service", "~@privileged @resources"]
    assert unit["CacheDirectory"] == ["shoal"]
    assert "XDG_CACHE_HOME=%C/shoal" in unit["Environment"]
    assert unit["ReadWritePaths"] == []
