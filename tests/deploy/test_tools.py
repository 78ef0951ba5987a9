"""The tools of `make tools` run, at the versions that deploy/tools/versions.toml names."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.tools import run_tool, tool

ROOT = Path(__file__).resolve().parents[2]
INSTALL = ROOT / "deploy" / "tools" / "install.py"
VERSION = {
    "actionlint": ["-version"],
    "helm": ["version", "--template", "{{.Version}}"],
    "kubeconform": ["-v"],
    "kustomize": ["version"],
    "toxiproxy-cli": ["--version"],
    "toxiproxy-server": ["-version"],
}
NAMELESS = {"kubeconform", "toxiproxy-cli", "toxiproxy-server"}
"""Their version is set by their own build scripts, not by `go install`; `go version -m` shows it."""


def test_every_tool_of_go_is_the_one_of_the_list() -> None:
    listed = tomllib.loads((INSTALL.parent / "versions.toml").read_text(encoding="utf-8"))["go"]
    assert set(listed) == set(VERSION)
    for name, wanted in listed.items():
        done = run_tool(name, *VERSION[name])
        assert done.returncode == 0, name
        assert name in NAMELESS or wanted["version"].removeprefix("v").rpartition(".")[0] in done.stdout, name
        told = subprocess.run(["go", "version", "-m", tool(name)], capture_output=True, text=True, check=True).stdout
        assert f"\tmod\t{wanted['module']}\t{wanted['version']}\t{wanted['sum']}\n" in told


@pytest.mark.parametrize(
    ("tools_asked", "code", "said"),
    [
        ((), 1, "tools: no go found: install Go 1.26 or newer and put it into the PATH\n"),
        (("prometheus", "promtool"), 0, "build/tools/bin: prometheus promtool\n"),
        (("prometheos", "helm"), 1, "tools: prometheos: unknown; the tools are actionlint helm kcat "),
    ],
)
def test_without_go_programs_of_debian_are_installed_and_the_rest_is_answered_with_what_to_do(
    tools_asked: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    environment = os.environ | {"PATH": str(tmp_path)}
    command = [sys.executable, str(INSTALL), *tools_asked]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code
    assert (done.stdout + done.stderr).startswith(said)
