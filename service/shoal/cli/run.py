"""`shoal run`: the service, from Kafka topic to Kafka topic.

A worker collects cyclic garbage once a second. By default Python collects after 700 allocations of containers, and
every poll of a consumer allocates thousands. What is loaded at the start (modules, compiled kernels) is then examined
again and again, and nothing of it is ever garbage.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NoReturn

from shoal.cli.options import add_http_options, add_option
from shoal.kafka import StartOptions, Worker, check_files
from shoal.observability import (
    Health,
    KernelCompiler,
    Metrics,
    install_loop_exception_handler,
    log_totals,
    logger,
)
from shoal.observability.http import serve
from shoal.observability.http_access import HttpAccess
from shoal.policy import KafkaSection, Policy
from shoal.settings import kafka_settings, require_no_fault

ALLOCATIONS = 50_000
"""Containers allocated and not freed, after which Python collects without being asked."""

COLLECT_S = 1.0
"""Least time between two collections (s). The Kafka client leaves fetched data of about 1 MB in a reference cycle when
a partition is paused, which takes few allocations; so collections must not depend on their number alone."""

COLLECTING = 0.1
"""Largest share of the processor time of a thread for collections: with many partitions one takes 0.1 s or more."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the start options and the HTTP address."""
    where = "where a partition without committed progress begins; committed progress always wins"
    add_option(parser, "--from", "SHOAL_FROM", dest="reset", choices=("earliest", "latest"), meaning=where)
    add_http_options(parser)
    parser.add_argument(
        "--drain", action="store_true", help="read to the end, release or suppress all held records, exit"
    )
    parser.add_argument(
        "--skip-to-end",
        action="store_true",
        help="where a partition may not begin otherwise: begin at its end and count the skipped offsets",
    )
    parser.add_argument(
        "--skip-lost",
        action="store_true",
        help="where records that wait were deleted: go on at the first retained record and count the deleted ones",
    )


def execute(options: argparse.Namespace) -> int:
    """Run a worker until a signal stops it, or until the input is drained."""
    policy = Policy.load(options.policy)
    settings = kafka_settings(policy)
    require_no_fault(policy, check_files(settings))
    policy.require_stream(options.policy)
    start = StartOptions(
        reset=options.reset, skip_to_end=options.skip_to_end, skip_lost=options.skip_lost, drain=options.drain
    )
    asyncio.run(_serve(policy, settings, start, options.http, HttpAccess.of(options)))
    return 0


async def _serve(policy: Policy, settings: KafkaSection, start: StartOptions, address: str, access: HttpAccess) -> None:
    """Run a worker until it has ended, while probes are answered.

    Kernels are compiled beside it.
    """
    metrics, health = Metrics(str(settings.group)), Health()
    worker = Worker(policy, settings, metrics, health, start)
    loop = asyncio.get_running_loop()
    install_loop_exception_handler(loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(serve(address, metrics, health, access))
        logger("cli").info("started", http_port=port, policy=policy.fingerprint[:16], group=settings.group)
        compiler = stack.enter_context(KernelCompiler(policy, logger("cli"), patience_s=0.0))
        compiling = asyncio.create_task(_compile(compiler, stack, health))
        try:
            await worker.run()
        finally:
            compiling.cancel()
            await asyncio.wait({compiling})
    log_totals(logger("cli"), metrics, policy.value_limits)


async def _compile(compiler: KernelCompiler, stack: AsyncExitStack, health: Health) -> None:
    """Change to compiled kernels; then collect garbage at intervals until the stack is closed.

    Nothing is compiled before the brokers and the progress of the partitions have let the worker begin.
    """
    await health.accepted()
    await compiler.finish()
    await stack.enter_async_context(spaced_collections())


@asynccontextmanager
async def spaced_collections() -> AsyncIterator[None]:
    """Collect about once a second while the context is open, and leave out what exists when it is entered.

    It changes the settings of the whole process, and restores them at the end. Enter it when modules are loaded and
    kernels compiled. Cost: one full collection at the beginning (about 0.1 s), then one of some milliseconds a second;
    fewer if they take long.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(ALLOCATIONS, *before[1:])
    collecting = asyncio.create_task(_collect())
    try:
        yield
    finally:
        collecting.cancel()
        gc.set_threshold(*before)
        gc.unfreeze()


async def _collect() -> NoReturn:
    took_s = 0.0
    while True:
        await asyncio.sleep(max(COLLECT_S, took_s / COLLECTING))
        began_s = time.thread_time()
        gc.collect()
        took_s = time.thread_time() - began_s
