"""What the fork server of `support.forked` imports and compiles before it forks: each module and kernel once."""

from __future__ import annotations

import gc
from importlib import import_module

from shoal.kernels.jit import use_compiled
from support.compile_once import compile_once
from support.kernels import compile_kernels

MODULES = ("shoal.cli", "shoal.stage", "faust.cli.faust", "faust.transport.drivers.aiokafka", "structlog.dev")

for module in MODULES:
    import_module(module)
use_compiled()
compile_once()
compile_kernels()
# Pages that hold these objects stay shared with forked processes.
gc.collect()
gc.freeze()
