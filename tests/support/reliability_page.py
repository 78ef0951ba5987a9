"""Write docs/reports/reliability.md: run the nightly faults of a cluster one by one, and print what they recorded.

Rows of faults that were not run stay as they are printed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.reliability import PAGE, RESULTS, ROOT, page, printed, recorded

RECORDING = re.compile(r"^from support\.(reliability|storms) import .*\b(record|recorded_check|storm)$", re.MULTILINE)
"""How a test file imports what records a result; names are sorted, so it is the last one."""


def files_of_faults() -> list[str]:
    """Return the test files that record results."""
    files = sorted((ROOT / "tests" / "faults").glob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in files if RECORDING.search(path.read_text("utf-8"))]


def main() -> int:
    """Run the tests and write the page; the exit code is that of pytest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="words of the names of tests, as for -k of pytest")
    parser.add_argument("--recorded", action="store_true", help="run nothing; print what was recorded before")
    arguments = parser.parse_args()
    code = 0
    if not arguments.recorded:
        shutil.rmtree(RESULTS, ignore_errors=True)
        chosen = ["-k", arguments.only] if arguments.only else []
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-m", "nightly", *chosen, *files_of_faults()]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
    results = recorded()
    PAGE.write_text(page([*printed(), *results]), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(results)} new results, {len(printed())} in all")
    return code


if __name__ == "__main__":
    sys.exit(main())
