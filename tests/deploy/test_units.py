"""The systemd unit, judged by systemd itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
SYSTEM = Path("/usr/lib/systemd/system")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root folder with the unit, the units of this machine and a program at the place of the command."""
    root = tmp_path_factory.mktemp("root")
    installed, program = root / "etc/systemd/system", root / "opt/shoal/bin/shoal"
    (installed / "shoal@.service.d").mkdir(parents=True)
    shutil.copy(FOLDER / "shoal@.service", installed)
    shutil.copy(FOLDER / "sasl.conf", installed / "shoal@.service.d")
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    shutil.copytree(SYSTEM, root / SYSTEM.relative_to("/"), symlinks=True)
    return root


def analyzed(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    assert program, "systemd-analyze is missing; on Debian: apt-get install systemd"
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_the_unit_has_no_fault(root: Path) -> None:
    done = analyzed(f"--root={root}", "verify", "--man=no", "--recursive-errors=no", "shoal@1.service")
    assert (done.returncode, [line for line in done.stderr.splitlines() if "shoal" in line]) == (0, [])
    unit = root / "etc/systemd/system/shoal@.service"
    text = unit.read_text(encoding="utf-8")
    unit.write_text(text.replace("NoNewPrivileges=yes", "NoNewPrivilege=yes"), encoding="utf-8")
    done = analyzed(f"--root={root}", "verify", "--man=no", "--recursive-errors=no", "shoal@1.service")
    unit.write_text(text, encoding="utf-8")
    assert "'NoNewPrivilege'" in done.stderr, "a misspelt key would be seen"


def test_the_exposure_of_the_unit_is_low(root: Path) -> None:
    done = analyzed("security", "--offline=yes", f"--root={root}", "--threshold=15", "--no-pager", "shoal@1.service")
    assert done.returncode == 0, done.stdout[-300:]
    assert "Overall exposure level for shoal@1.service: 1." in done.stdout
