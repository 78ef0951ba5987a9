"""A worker whose kernels take long to compile: `python slow_compiler.py run POLICY ...` as `shoal run POLICY ...`.

It begins to compile when the file `kernels` exists beside the policy. Until then the compiler cannot be stopped, as
during one of its long steps.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from threading import Event

from shoal.cli import main, run
from shoal.policy import Policy
from shoal.streams import precompile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support.kafka_broker import wait_until


def compile_slowly(policy: Policy, stop: Event | None = None) -> None:
    asyncio.run(wait_until(Path(sys.argv[2]).with_name("kernels").exists, 120, "the file"))
    precompile(policy, stop)


if __name__ == "__main__":
    vars(run)["precompile"] = compile_slowly
    sys.exit(main())
