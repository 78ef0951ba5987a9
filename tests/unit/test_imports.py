"""What a command loads: only what it needs, because loading takes most of the time of a start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

QUICK_START = Path(__file__).parents[2] / "docs" / "quickstart"
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
    needless = {"numba", "numpy", "narwhals", "pandas", "pyarrow", "shoal.audit", "shoal.frames", "shoal.policy"}
    assert not loaded & {*needless, "shoal.streams", "shoal.tables"}
    assert "shoal.audit" in loaded_after("from shoal import verify")
    with pytest.raises(AttributeError, match="module 'shoal' has no attribute 'nothing'"):
        __import__("shoal").nothing  # noqa: B018


def test_the_package_shows_its_functions_and_modules_before_they_are_loaded() -> None:
    program = (
        "import shoal; names = [name for name in dir(shoal) if not name.startswith('_')]; "
        "assert names == ['Policy', 'StreamAggregator', 'anonymize_table', 'arrays', 'audit', 'errors', "
        "'microaggregate', 'policy', 'streams', 'tables', 'verify'], names; "
        "assert issubclass(shoal.errors.ParameterError, shoal.errors.ShoalError)"
    )
    loaded_after(program)


@pytest.mark.parametrize(
    ("command", "needed", "not_needed"),
    [
        (["--help"], set(), {"numpy", "pydantic", "structlog", "shoal.policy", "shoal.observability"}),
        (["check"], {"shoal.cli.check", "shoal.policy"}, {"shoal.files", "shoal.kafka", "shoal.streams"}),
        (["pipe"], {"shoal.cli.pipe", "shoal.files"}, {"shoal.kafka", "cryptography"}),
        (["run"], {"shoal.cli.run", "shoal.kafka", "aiohttp"}, {"shoal.audit", "shoal.cli.batch", "shoal.stage"}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_loads_what_it_needs(command: list[str], needed: set[str], not_needed: set[str]) -> None:
    loaded = loaded_after(f"from shoal.cli.command_line import build_parser; build_parser({command})")
    assert needed <= loaded
    servers = set() if "run" in command else {"aiohttp", "aiokafka"}
    assert not loaded & {"numba", "pyarrow", "highspy", "faust", *servers, *not_needed}


@pytest.mark.parametrize("options", [["check"], ["pipe", "-i", str(QUICK_START / "visits.csv"), "--format", "csv"]])
def test_a_command_of_the_quick_start_loads_no_compiler_and_no_client(options: list[str]) -> None:
    arguments = [options[0], str(QUICK_START / "policy.yaml"), *options[1:]]
    loaded = loaded_after(f"from shoal.cli import main; assert main({arguments}) == 0")
    assert not loaded & {"numba", "aiohttp", "aiokafka", "shoal.kafka", "shoal.audit"}


def test_the_version_loads_nothing_and_is_that_of_the_parser() -> None:
    command = "import sys; sys.argv = ['shoal', '--version']; from shoal_command import main; assert main() == 0"
    assert "shoal" not in loaded_after(command)
    version = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True).stdout
    parser = subprocess.run([sys.executable, "-m", "shoal.cli", "--version"], capture_output=True, check=True).stdout
    assert version == parser
