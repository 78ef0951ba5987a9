"""`shoal run`: the service, from Kafka topic to Kafka topic."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import TypeAlias

from shoal.cli.environment import add_option
from shoal.cli.garbage_collection import spaced_collections
from shoal.cli.http_access import add_http_options, http_access, is_open
from shoal.cli.kafka_files import require_files
from shoal.kafka import StartOptions, Worker, in_daemon_thread
from shoal.observability import (
    CompilationNotice,
    Health,
    Metrics,
    install_loop_exception_handler,
    log_totals,
    logger,
    stream_compile_s,
)
from shoal.observability.http import serve
from shoal.pipeline import precompile
from shoal.policy import KafkaSection, Policy
from shoal.settings import kafka_settings

__all__ = ["SUMMARY", "add_arguments", "execute"]

SUMMARY = "Run the service: Kafka to Kafka, exactly once."
Server: TypeAlias = Callable[[Metrics, Health, Callable[[], dict[str, int]]], AbstractAsyncContextManager[int]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the start options and the HTTP address."""
    add_option(
        parser,
        "--from",
        "SHOAL_FROM",
        dest="reset",
        choices=("earliest", "latest"),
        meaning="where a partition without committed progress begins; committed progress always wins",
    )
    add_http_options(parser)
    parser.add_argument(
        "--drain", action="store_true", help="read to the end, release or suppress all held records, exit"
    )
    parser.add_argument(
        "--skip-to-end",
        action="store_true",
        help="where a partition may not begin otherwise: begin at its end and count the skipped offsets",
    )


def execute(options: argparse.Namespace) -> int:
    """Run a worker until a signal stops it, or until the input is drained."""
    policy = Policy.load(options.policy)
    settings = kafka_settings(policy)
    require_files(policy, settings)
    policy.require_stream(options.policy)
    start = StartOptions(reset=options.reset, skip_to_end=options.skip_to_end, drain=options.drain)
    access = http_access(options)
    if is_open(options.http, access):
        words = "metrics and page can be read by other machines without a token; --http-token-file requires one"
        logger("cli").warning(words, http=options.http)
    server = partial(serve, options.http, host_names=options.http_host, access=access)
    asyncio.run(_serve(policy, settings, start, server))
    return 0


async def _serve(policy: Policy, settings: KafkaSection, start: StartOptions, server: Server) -> None:
    """Run a worker until it has ended, while probes are answered.

    Kernels are compiled while the worker checks the topics or waits for the broker.
    """
    metrics, health = Metrics(str(settings.group)), Health()
    worker = Worker(policy, settings, metrics, health, start)
    loop = asyncio.get_running_loop()
    install_loop_exception_handler(loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(server(metrics, health, metrics.totals))
        logger("cli").info("started", http_port=port, policy=policy.fingerprint[:16], group=settings.group)
        worker.compiling = asyncio.create_task(_compile(policy, health, stack))
        try:
            await worker.run()
        finally:
            worker.compiling.cancel()
            await asyncio.wait({worker.compiling})
    log_totals(logger("cli"), metrics, policy.value_limits)


async def _compile(policy: Policy, health: Health, stack: AsyncExitStack) -> None:
    """Compile all kernels; then collect garbage at intervals until the stack is closed."""
    with CompilationNotice(logger("cli"), stream_compile_s(policy), health.set_compiling):
        await in_daemon_thread(partial(precompile, policy))
    await stack.enter_async_context(spaced_collections())
