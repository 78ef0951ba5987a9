"""The tools of `make tools` run, at the versions that deploy/tools/versions.toml names."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support import tools
from support.faketime import library
from support.tools import output_of, run_tool, tool

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


def test_the_tools_of_debian_run() -> None:
    assert "promtool, version 2." in output_of("promtool", "--version")
    assert "prometheus, version 2." in output_of("prometheus", "--version")
    assert "Version 1." in output_of("kcat", "-V")
    assert library().name == "libfaketime.so.1"


def test_a_second_installation_changes_nothing() -> None:
    before = {path: path.stat().st_mtime_ns for path in sorted(tools.BIN.iterdir())}
    done = subprocess.run([sys.executable, INSTALL], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "build/tools/bin: actionlint helm kcat kubeconform kustomize prometheus promtool toxiproxy-cli "
        "toxiproxy-server\n"
    )
    assert {path: path.stat().st_mtime_ns for path in sorted(tools.BIN.iterdir())} == before


def test_without_go_one_line_says_what_to_install(tmp_path: Path) -> None:
    environment = os.environ | {"PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, INSTALL], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "tools: no go found: install Go 1.26 or newer and put it into the PATH\n"


def test_programs_of_debian_need_no_go(tmp_path: Path) -> None:
    environment = os.environ | {"PATH": str(tmp_path)}
    command = [sys.executable, str(INSTALL), "prometheus", "promtool"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "build/tools/bin: prometheus promtool\n"


def test_an_unknown_tool_is_answered_with_the_known_ones() -> None:
    command = [sys.executable, str(INSTALL), "prometheos", "helm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("tools: prometheos: unknown; the tools are actionlint helm kcat ")


def test_an_absent_tool_is_a_failure_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tools, "BIN", tmp_path)
    with pytest.raises(AssertionError, match="helm is missing: run `make tools`"):
        tool("helm")
