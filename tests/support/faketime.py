"""libfaketime: processes whose clock a test sets ahead and back, while the clocks of all others stay right."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from support.faulty_workers import Worker

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "build" / "tools" / "debian"
NAME = "faketime/libfaketime.so.1"


def library() -> Path:
    """Return the library: the installed one, or that of `make tools`."""
    folders = (Path("/usr/lib"), Path("/usr/local/lib"), TOOLS)
    found = [path for folder in folders for path in sorted(folder.glob(f"**/{NAME}"))]
    assert found, "libfaketime is missing: run `make tools`"
    return found[0]


@dataclass(frozen=True)
class SetClock:
    """A clock that is as far ahead of the right time as a file says; processes notice changes at once."""

    file: Path

    def set_ahead(self, ahead_s: int) -> None:
        """Set the clock so far ahead (s) of the right time."""
        draft = self.file.with_suffix(".draft")
        draft.write_text(f"{ahead_s:+d}\n")
        draft.replace(self.file)

    @property
    def variables(self) -> dict[str, str]:
        """Environment of a new process with this clock; durations and the times of files stay right."""
        return {
            "LD_PRELOAD": os.pathsep.join(filter(None, (str(library()), os.environ.get("LD_PRELOAD")))),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }


@dataclass
class ClockWorker(Worker):
    clock: SetClock | None = None

    def environment(self, die_at: str, instance: str | None = None, patience_s: str = "300") -> dict[str, str]:
        assert self.clock is not None
        return super().environment(die_at, instance, patience_s) | self.clock.variables
