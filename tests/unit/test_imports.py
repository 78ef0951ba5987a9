"""What a command loads: only what it needs, because loading takes most of the time of a start."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

LOADED = (
    "import json, sys; "
    "print(json.dumps([name for name in sys.modules if '.' not in name or name.startswith('shoal.')]))"
)


def loaded_after(statements: str) -> set[str]:
    """Return the modules of Shoal and the packages that a new interpreter has loaded after these statements."""
    done = subprocess.run([sys.executable, "-c", f"{statements}; {LOADED}"], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_package_loads_what_is_used() -> None:
    loaded = loaded_after("import shoal; assert 'verify' in shoal.__all__")
    assert "shoal" in loaded
    assert not loaded & {"numba", "numpy", "shoal.audit", "shoal.streams", "shoal.tables", "shoal.policy"}
    assert "shoal.audit" in loaded_after("from shoal import verify")
    with pytest.raises(AttributeError, match="module 'shoal' has no attribute 'nothing'"):
        __import__("shoal").nothing  # noqa: B018


def test_the_package_shows_its_functions_and_modules_before_they_are_loaded() -> None:
    program = (
        "import shoal; names = [name for name in dir(shoal) if not name.startswith('_')]; "
        "assert names == ['Policy', 'StreamAggregator', 'arrays', 'audit', 'errors', 'microaggregate', 'policy', "
        "'streams', 'tables', 'verify'], names; assert issubclass(shoal.errors.ParameterError, shoal.errors.ShoalError)"
    )
    loaded_after(program)


def test_a_worker_loads_no_other_command() -> None:
    loaded = loaded_after("from shoal.cli.command_line import build_parser; build_parser(['run'])")
    assert {"shoal.cli.run", "shoal.kafka"} <= loaded
    assert not loaded & {"shoal.audit", "shoal.cli.batch", "shoal.stage", "numba", "pyarrow", "highspy", "faust"}


def test_a_pipe_loads_no_server_and_no_client() -> None:
    loaded = loaded_after("from shoal.cli.command_line import build_parser; build_parser(['pipe'])")
    assert {"shoal.cli.pipe", "shoal.files"} <= loaded
    assert not loaded & {"aiohttp", "aiokafka", "cryptography", "faust", "numba", "shoal.kafka"}


def test_the_version_loads_nothing_and_is_that_of_the_parser() -> None:
    command = "import sys; sys.argv = ['shoal', '--version']; from shoal_command import main; assert main() == 0"
    assert "shoal" not in loaded_after(command)
    version = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True).stdout
    parser = subprocess.run([sys.executable, "-m", "shoal.cli", "--version"], capture_output=True, check=True).stdout
    assert version == parser
