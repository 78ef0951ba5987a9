"""The commands. The only place where the rooms are put together, and the only one that prints."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from threading import Event
from typing import Any, NoReturn

from shoal.audit import verify
from shoal.clustering.static import ALGORITHMS, REFINEMENTS, T_CLOSE_ALGORITHMS
from shoal.errors import ConfigError, InputError, ShoalError
from shoal.files import Files, choice_of, run_batch, run_pipe, write_text
from shoal.kafka import StartOptions, Worker, check_policy, export_progress, import_progress, report_progress
from shoal.observability import Health, Metrics, guard, guard_loop, logger, place_of, serve, set_up_logs, visible
from shoal.pipeline import precompile
from shoal.policy import KafkaSection, Policy
from shoal.settings import kafka_settings

__all__ = ["main"]

DEFAULT_HTTP = "127.0.0.1:9464"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the process's exit code: 0 done, 1 a check failed, 2 unusable input, 3 broker."""
    options = _parser().parse_args(arguments)
    set_up_logs(options.log)
    guard()
    try:
        return _obey(options)
    except ShoalError as error:
        _complain(options, error.code, str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _forget_output()
        return 2
    except OSError as error:
        _forget_output()
        _complain(options, "input", f"{error.filename or 'a file or stream'}: {error.strerror}")
        return 2
    except Exception as error:  # noqa: BLE001 - the last border: a text of whatever this is could hold values
        _complain(options, "unexpected", f"unexpected {place_of(error)}: nothing was written")
        return 2


def _obey(options: argparse.Namespace) -> int:
    command: Callable[[argparse.Namespace], int] = options.command
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Ends by unwinding, so that drafts of files are taken away; `run` listens in its own way.
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return command(options)


def _forget_output() -> None:
    """Leave nothing for the interpreter to flush into a pipe or device that does not take it."""
    with contextlib.suppress(OSError):
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(options: argparse.Namespace, code: str, text: str) -> None:
    """Say on standard error why the command ends, in the style that was asked for."""
    if options.log == "json":
        logger("cli").error("stopped", code=code, reason=text)
    else:
        print(f"shoal: {visible(text)}", file=sys.stderr)


# ---------------------------------------------------------------------- commands


def _check(options: argparse.Namespace) -> int:
    policy = Policy.load(options.policy)
    check_policy(policy, options.policy)
    told = policy.resolved() | {"fingerprint": policy.fingerprint}
    if policy.stream is not None and policy.stream.reason:
        told["chosen"] = {"stream.rule": policy.stream.reason}
    print(visible(json.dumps(told, indent=2, ensure_ascii=False)))
    return 0


def _run(options: argparse.Namespace) -> int:
    policy, settings = _for_kafka(options)
    policy.streaming(options.policy)
    start = StartOptions(origin=options.origin, skip_to_end=options.skip_to_end, drain=options.drain)
    asyncio.run(_serve(policy, settings, start, options.http))
    return 0


async def _serve(policy: Policy, settings: KafkaSection, start: StartOptions, http: str) -> None:
    metrics, health = Metrics(), Health()
    transformer = Worker(policy, settings, metrics, health, start)
    loop = asyncio.get_running_loop()
    guard_loop(loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, transformer.stop)
    async with serve(http, metrics, health, metrics.totals) as port:
        logger("cli").info("started", http_port=port, policy=policy.fingerprint[:16], group=settings.group)
        # In a thread: probes are answered and signals are heard while kernels compile.
        await asyncio.to_thread(precompile, policy)
        await transformer.run()
    logger("cli").info("stopped", **metrics.totals())


def _pipe(options: argparse.Namespace) -> int:
    policy = Policy.load(options.policy)
    policy.streaming(options.policy)
    files = _checked_files(options)
    run_pipe(policy, files, _until_signalled() if options.follow else None)
    return 0


def _batch(options: argparse.Namespace) -> int:
    policy = Policy.load(options.policy)
    files = _checked_files(options)
    choice = choice_of(options.algorithm, options.refine, options.param, options.seed)
    run_batch(policy, files, choice, keep_order=options.keep_order)
    return 0


def _checked_files(options: argparse.Namespace) -> Files:
    files = Files(
        source=options.input,
        target=options.output,
        form=options.format,
        target_form=options.output_format,
        summary=options.summary,
        evidence=options.evidence,
        quarantine=options.quarantine,
    )
    files.check(options.policy)
    return files


def _until_signalled() -> Event:
    """Set by the first SIGINT or SIGTERM; the second one ends the process as ever."""
    stop = Event()
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_signal(*_: object) -> None:
        stop.set()
        for number, handler in usual.items():
            signal.signal(number, handler)

    for number in usual:
        signal.signal(number, on_signal)
    return stop


def _verify(options: argparse.Namespace) -> int:
    given = (options.policy, options.original, options.released)
    _keep_apart(options.json, *given, options.evidence, options.summary, options.quarantine)
    policy = Policy.load(options.policy)
    verdict = verify(
        policy,
        original=options.original,
        released=options.released,
        evidence=options.evidence,
        summary=options.summary,
        quarantine=options.quarantine,
        complete=options.complete,
        strict=options.strict,
        form=options.format,
        released_form=options.output_format,
    )
    if options.json is not None:
        write_text(options.json, json.dumps(verdict.as_dict(), indent=2) + "\n")
    print(visible(verdict.text()))
    return verdict.exit_code


def _progress(options: argparse.Namespace) -> int:
    policy, settings = _for_kafka(options)
    if options.export_to is not None:
        _keep_apart(options.export_to, options.policy, settings.metadata_key_file)
        write_text(options.export_to, asyncio.run(export_progress(settings)) + "\n", private=True)
    elif options.import_from is not None:
        partitions = asyncio.run(import_progress(_read(options.import_from), policy, settings))
        print(json.dumps({"imported": partitions}))
    else:
        for line in asyncio.run(report_progress(policy, settings)):
            print(json.dumps(line))
    return 0


def _later(name: str) -> Callable[[argparse.Namespace], int]:
    def refuse(_: argparse.Namespace) -> NoReturn:
        raise ConfigError(f"shoal {name}: not yet; it comes with a later version")

    return refuse


def _for_kafka(options: argparse.Namespace) -> tuple[Policy, KafkaSection]:
    policy = Policy.load(options.policy)
    return policy, kafka_settings(policy)


def _keep_apart(target: str | None, *sources: str | Path | None) -> None:
    """Refuse to write over what is read, whatever it is called there."""
    if target is None or not Path(target).is_file():
        return
    if any(source is not None and Path(source).exists() and Path(source).samefile(target) for source in sources):
        raise ConfigError(f"{target}: named twice; give each its own file")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{path}: cannot be read as text") from None


# ---------------------------------------------------------------------- arguments


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--log", choices=("json", "text"), default="text", help="style of the log on standard error")
    parser = argparse.ArgumentParser(prog="shoal", description="Personal records made k-anonymous while they move.")
    parser.add_argument("--version", action="version", version=f"shoal {version('shoal')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, about: str, work: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        # No abbreviations: what they mean would change with every option that is added.
        sub: argparse.ArgumentParser = commands.add_parser(
            name, help=about, description=about, parents=[common], allow_abbrev=False
        )
        sub.add_argument("policy", metavar="POLICY", help="the policy file (YAML or TOML)")
        sub.set_defaults(command=work)
        return sub

    command("check", "Print the resolved policy, or all its faults.", _check)
    _run_arguments(command("run", "The service: Kafka to Kafka, exactly once.", _run))
    _pipe_arguments(command("pipe", "The stream engine over a file or a pipe, no broker.", _pipe))
    _verify_arguments(command("verify", "The independent judge of what was released.", _verify))
    _progress_arguments(command("progress", "How far each partition has come.", _progress))
    _batch_arguments(command("batch", "A finished table: the least information loss there is.", _batch))
    later = command("tune", "Parameters from a sample (later).", _later("tune"))
    later.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _run_arguments(run: Any) -> None:  # noqa: ANN401 - argparse's own
    run.add_argument(
        "--from",
        dest="origin",
        choices=("earliest", "latest"),
        help="where a partition begins that has no progress; it never overrides progress",
    )
    run.add_argument("--http", default=DEFAULT_HTTP, metavar="HOST:PORT", help="metrics and probes (%(default)s)")
    run.add_argument("--drain", action="store_true", help="read to the end, let everything held leave, exit")
    run.add_argument(
        "--skip-to-end",
        action="store_true",
        help="where a partition may not begin otherwise: begin at its end and count the gap",
    )


def _pipe_arguments(pipe: Any) -> None:  # noqa: ANN401
    pipe.add_argument("-i", "--input", default="-", metavar="FILE", help=".csv or .jsonl; - is standard input")
    pipe.add_argument("-o", "--output", default="-", metavar="FILE", help=".csv or .jsonl; - is standard output")
    _format_arguments(pipe)
    pipe.add_argument(
        "--follow", action="store_true", help="go on while the input grows, until SIGINT or SIGTERM; release as decided"
    )
    pipe.add_argument("--summary", metavar="FILE", help="figures of the run, as JSON")
    pipe.add_argument("--evidence", metavar="FILE", help="which records formed which cluster; protect it")
    pipe.add_argument("--quarantine", metavar="FILE", help="references to records that are not published")
    pipe.add_argument("--seed", type=int, default=0, metavar="N", help="no rule so far draws at random")


def _batch_arguments(batch: Any) -> None:  # noqa: ANN401
    files = ".csv, .jsonl or .parquet"
    batch.add_argument("-i", "--input", default="-", metavar="FILE", help=f"{files}; - is standard input")
    batch.add_argument("-o", "--output", default="-", metavar="FILE", help=f"{files}; - is standard output")
    _format_arguments(batch)
    batch.add_argument(
        "--algorithm",
        default="auto",
        metavar="A",
        help=f"auto (default), {', '.join([*ALGORITHMS, *T_CLOSE_ALGORITHMS])}",
    )
    batch.add_argument(
        "--refine", choices=REFINEMENTS, help="default: descent after auto, none after a named algorithm"
    )
    batch.add_argument(
        "--param", action="append", default=[], metavar="NAME=VALUE", help="of the algorithm; may be given again"
    )
    batch.add_argument("--keep-order", action="store_true", help="rows in the order of the input, not of their bytes")
    batch.add_argument("--summary", metavar="FILE", help="figures of the table and its partition, as JSON")
    batch.add_argument("--evidence", metavar="FILE", help="which records formed which cluster; protect it")
    batch.add_argument("--quarantine", metavar="FILE", help="references to records that are not published")
    batch.add_argument("--seed", type=int, default=0, metavar="N", help="of all that is drawn at random")


def _format_arguments(command: Any) -> None:  # noqa: ANN401
    forms, files = ("csv", "jsonl"), "of pipes, and of files with another suffix"
    command.add_argument("--format", choices=forms, help=files)
    command.add_argument("--output-format", choices=forms, help="of the output, where it is another than --format")


def _verify_arguments(judge: Any) -> None:  # noqa: ANN401
    judge.add_argument("--original", required=True, metavar="FILE")
    judge.add_argument("--released", required=True, metavar="FILE")
    _format_arguments(judge)
    judge.add_argument("--evidence", metavar="FILE")
    judge.add_argument("--summary", metavar="FILE", help="accounts to balance against")
    judge.add_argument("--quarantine", metavar="FILE", help="references to records that were not released")
    judge.add_argument("--complete", action="store_true", help="every record must be released or referenced")
    strict = "a confidential field that finds records is an error, unless the policy says publish_unchanged: true of it"
    judge.add_argument("--strict", action="store_true", help=strict)
    judge.add_argument("--json", metavar="FILE", help="the verdict as JSON")


def _progress_arguments(progress: Any) -> None:  # noqa: ANN401
    either = progress.add_mutually_exclusive_group()
    either.add_argument("--export", dest="export_to", metavar="FILE", help="write all progress to a file")
    either.add_argument("--import", dest="import_from", metavar="FILE", help="commit it again; never goes back")


if __name__ == "__main__":
    sys.exit(main())
