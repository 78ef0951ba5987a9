"""The one line in somebody's app: ``async for cluster in anonymize(stream, policy)``."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from pathlib import Path
from typing import Any, Literal

from shoal.errors import ConfigError, Fault, PolicyError, ShoalError
from shoal.kafka import MetadataCipher, StartOptions, WorkerContext, check_policy
from shoal.observability import Health, Metrics, join_logs
from shoal.policy import KafkaSection, Policy
from shoal.settings import kafka_settings
from shoal.stage.faust_adapter import FaustAdapter, app_around, crash
from shoal.stage.handoff_queue import Cluster
from shoal.stage.supervisor import StageSupervisor

__all__ = ["Clusters", "anonymize"]

_ENDING: list[asyncio.Future[None]] = []


class Clusters:
    """Clusters of a stream, one at a time; asking for the next one says that the one before was dealt with.

    See `anonymize`, which makes it. Tasks that work side by side do not share it: one of them would say of a cluster
    that it was dealt with while another one still works on it.
    """

    def __init__(self, host: FaustAdapter, plan: WorkerContext, http: str | None, *, publishes: bool) -> None:
        self._host, self._plan, self._http, self._publishes = host, plan, http, publishes
        self._customer = self._admitted()
        self._asking: asyncio.Task[Any] | None = None
        self._begun: asyncio.Task[StageSupervisor] | None = None

    def __aiter__(self) -> Clusters:
        return self

    async def __anext__(self) -> Cluster:
        task = asyncio.current_task()
        # One that is over was made for one question, as wait_for may do.
        if self._asking is not None and self._asking is not task and not self._asking.done():
            error = ConfigError(
                f"anonymize: topic {self._host.topic}: two tasks ask for clusters: which of them were dealt with, "
                "nobody could tell; ask from one of them (for a limit of time use asyncio.timeout)"
            )
            await self._host.crash(error)
            raise error
        self._asking = task
        if self._begun is None:
            self._begun = asyncio.create_task(self._begin())
        # Who stops waiting may ask again: the beginning goes on.
        keeper = await asyncio.shield(self._begun)
        return await keeper.desk.next()

    async def _begin(self) -> StageSupervisor:
        kept: dict[str, StageSupervisor] = vars(self._host.app).setdefault("shoal_keepers", {})
        if not self._host.is_ending and (before := kept.pop(self._host.topic, None)) is not None:
            # An agent that failed has left it behind.
            await before.stop(show=False)
        if self._host.is_ending:
            raise StopAsyncIteration
        keeper = StageSupervisor(self._plan, self._host, self._http, publishes=self._publishes)
        kept[self._host.topic] = keeper
        self._tell_when_left(keeper)
        await keeper.start()
        return keeper

    def _tell_when_left(self, keeper: StageSupervisor) -> None:
        """Let the keeper know when nobody can ask any more: the agent has ended, or left its loop."""
        loop, left = asyncio.get_running_loop(), keeper.left

        def tell(*_: object) -> None:
            # Maybe from another thread, and after the loop was closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(left.set)

        weakref.finalize(self, tell).atexit = False
        if self._customer is not None:
            self._customer.add_done_callback(tell)

    def _admitted(self) -> asyncio.Task[Any] | None:
        """The task that will ask: an agent that is started again takes over from itself, two never share a topic."""
        customers: dict[str, asyncio.Task[Any] | None] = vars(self._host.app).setdefault("shoal_customers", {})
        present, mine = customers.get(self._host.topic), asyncio.current_task()
        if present is not None and not present.done() and present is not mine:
            # At once: an app that is ended while it starts may not come to its end.
            raise ConfigError(f"anonymize: topic {self._host.topic} has a stage already: one for each topic of an app")
        customers[self._host.topic] = mine
        return mine


def anonymize(
    stream: Any,  # noqa: ANN401 - Faust's types say little
    policy: str | Path | Policy,
    *,
    to: Any = None,  # noqa: ANN401
    start: Literal["earliest", "latest"] | None = None,
    skip_to_end: bool = False,
    http: str | None = None,
) -> Clusters:
    """Make a stream of personal records into clusters of at least k people.

    Parameters
    ----------
    stream : faust.Stream
        As the agent gets it, of one topic that is declared with ``acks=False``; its values may be records (models),
        dicts or bytes. What counts is the bytes of the topic: the policy decides what is a record.
    policy : str, Path or Policy
        The file of `shoal run`. Its group is the app's id, its input the topic; both may be left out, and so may
        the brokers.
    to : str or topic, optional
        Where the records are published, exactly once. Without it nothing is published.
    start : {"earliest", "latest"}, optional
        Where a partition begins that has no progress; it never overrides progress.
    skip_to_end : bool
        Where a partition may not begin otherwise: begin at its end and count the gap.
    http : str, optional
        ``HOST:PORT`` of metrics, probes and page; each worker of a machine needs its own port.

    Returns
    -------
    Clusters
        An asynchronous iterator of `Cluster`.

    Raises
    ------
    ConfigError
        Stream, policy and app do not fit; a `PolicyError` has every fault of the policy.

    Notes
    -----
    Guarantee with ``to``: that of `shoal run`, with the same progress, transactions and fencing; a cluster is seen
    here when it is in the topic, and after a crash not again, not even if it was not seen by then. With ``release:
    ordered`` it is seen when it is decided: its records follow one by one.
    Guarantee without: a cluster counts as released when the next one is asked for, and is committed at most
    ``commit_interval_ms`` after the last of those that were decided together with it: one or two while records keep
    coming, up to delta / k of a partition after a pause of ``max_delay_s``. A crash repeats those that were not
    committed, and they are the same: partition, number and bytes. None is left out.
    Memory: some thousand records, whatever comes and however long a cluster is kept.
    One task asks for clusters; a second one, while that goes on, is refused. If the one that called this leaves its
    loop, or ends, the app ends too, ten seconds later: nothing would go on, and nothing would say so.
    """
    join_logs()
    begin = StartOptions(origin=start, skip_to_end=skip_to_end)
    try:
        return _clusters(stream, policy, to, begin, http)
    except ShoalError as error:
        # Faust would start the agent again and again, and records would wait in silence.
        app = app_around(stream)
        if app is not None and app.started:
            _ENDING.append(asyncio.ensure_future(crash(app, error)))
        raise


def _clusters(stream: Any, policy: str | Path | Policy, to: Any, start: StartOptions, http: str | None) -> Clusters:  # noqa: ANN401
    known = policy if isinstance(policy, Policy) else Policy.load(policy)
    source = "policy" if isinstance(policy, Policy) else str(policy)
    known.require_stream(source)
    check_policy(known, source)
    host = FaustAdapter(stream)
    target = None if to is None else to if isinstance(to, str) else to.get_topic_name()
    if target is None and known.require_stream(source).is_ordered:
        words = "ordered: nothing but a topic has an order in which records could leave; give to=, or use cluster"
        raise PolicyError([Fault(("stream", "release"), words)], source)
    settings = _settings(known, host, target, source)
    plan = WorkerContext(known, settings, Metrics(), Health(), start, MetadataCipher.of(settings))
    return Clusters(host, plan, http, publishes=target is not None)


def _settings(policy: Policy, host: FaustAdapter, target: str | None, source: str) -> KafkaSection:
    """Settings of the policy and the environment; what neither says is the app's."""
    given = {"bootstrap_servers": host.brokers, "input": host.topic, "group": host.group}
    required = ("bootstrap_servers", "input", "group")
    settings = kafka_settings(
        policy, defaults=given if target is None else given | {"output": target}, required=required
    )
    must = {"input": host.topic, "group": host.group} | ({} if target is None else {"output": target})
    faults = [
        Fault(("kafka", name), f"the app says {word}, the policy something else: they must be the same")
        for name, word in must.items()
        if getattr(settings, name) != word
    ]
    if faults:
        raise PolicyError(faults, source)
    return settings
