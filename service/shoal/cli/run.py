"""`shoal run`: the service, from Kafka topic to Kafka topic."""

from __future__ import annotations

import argparse
import asyncio
import signal
from contextlib import AsyncExitStack
from functools import partial

from shoal.cli.garbage_collection import spaced_collections
from shoal.cli.kafka_files import require_files
from shoal.kafka import StartOptions, Worker, in_daemon_thread
from shoal.observability import (
    CompilationNotice,
    Health,
    Metrics,
    install_loop_exception_handler,
    log_totals,
    logger,
    serve,
    stream_compile_s,
)
from shoal.pipeline import precompile
from shoal.policy import KafkaSection, Policy
from shoal.settings import kafka_settings

__all__ = ["SUMMARY", "add_arguments", "execute"]

SUMMARY: str | None = "Run the service: Kafka to Kafka, exactly once."
DEFAULT_HTTP = "127.0.0.1:9464"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the start options and the HTTP address."""
    parser.add_argument(
        "--from",
        dest="reset",
        choices=("earliest", "latest"),
        help="where a partition without committed progress begins; committed progress always wins",
    )
    parser.add_argument("--http", default=DEFAULT_HTTP, metavar="HOST:PORT", help="metrics and probes (%(default)s)")
    parser.add_argument(
        "--http-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a full host name that metrics and page answer to, beside addresses and private names; repeatable",
    )
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
    asyncio.run(_serve(policy, settings, start, options.http, options.http_host))
    return 0


async def _serve(policy: Policy, settings: KafkaSection, start: StartOptions, http: str, host_names: list[str]) -> None:
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
        port = await stack.enter_async_context(serve(http, metrics, health, metrics.totals, host_names))
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
