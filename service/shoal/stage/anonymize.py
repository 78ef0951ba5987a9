"""The public function of the stage: ``async for cluster in anonymize(stream, policy)``."""

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
from shoal.settings import kafka_settings, settings_error
from shoal.stage.faust_adapter import FaustAdapter, find_app, stop_app
from shoal.stage.handoff_queue import Cluster
from shoal.stage.supervisor import StageSupervisor

_STOPPING: list[asyncio.Future[None]] = []
"""Running calls of `stop_app`; the event loop itself holds weak references only."""


class Clusters:
    """Asynchronous iterator of clusters; asking for the next cluster acknowledges the one before.

    `anonymize` makes it. Only one task may iterate: a second one would acknowledge a cluster that the first is still
    working on.
    """

    def __init__(self, adapter: FaustAdapter, context: WorkerContext, http: str | None, *, publishes: bool) -> None:
        self._adapter, self._context, self._http, self._publishes = adapter, context, http, publishes
        self._owner = self._register_owner()
        self._asking: asyncio.Task[Any] | None = None
        self._starting: asyncio.Task[StageSupervisor] | None = None

    def __aiter__(self) -> Clusters:
        return self

    async def __anext__(self) -> Cluster:
        task = asyncio.current_task()
        # wait_for may make a new task for each call; a task that is done does not count as a second one.
        if self._asking is not None and self._asking is not task and not self._asking.done():
            error = ConfigError(
                f"anonymize: topic {self._adapter.topic}: two tasks ask for clusters, so it is not known which ones "
                "are processed; ask from one task (for a time limit use asyncio.timeout)"
            )
            await self._adapter.stop_app(error)
            raise error
        self._asking = task
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        # A caller with a time limit may ask again: the start continues.
        supervisor = await asyncio.shield(self._starting)
        return await supervisor.queue.next()

    async def _start(self) -> StageSupervisor:
        supervisors: dict[str, StageSupervisor] = vars(self._adapter.app).setdefault("shoal_supervisors", {})
        if not self._adapter.is_stopping and (previous := supervisors.pop(self._adapter.topic, None)) is not None:
            # The agent failed, and Faust has started it again.
            await previous.stop(drain=False)
        if self._adapter.is_stopping:
            raise StopAsyncIteration
        supervisor = StageSupervisor(self._context, self._adapter, self._http, publishes=self._publishes)
        supervisors[self._adapter.topic] = supervisor
        self._notify_when_abandoned(supervisor)
        await supervisor.start()
        return supervisor

    def _notify_when_abandoned(self, supervisor: StageSupervisor) -> None:
        """Set ``supervisor.abandoned`` when no task can ask any more: the agent has ended or has left its loop."""
        loop, abandoned = asyncio.get_running_loop(), supervisor.abandoned

        def notify(*_: object) -> None:
            # The garbage collector may call this in another thread, and after the loop is closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(abandoned.set)

        weakref.finalize(self, notify).atexit = False
        if self._owner is not None:
            self._owner.add_done_callback(notify)

    def _register_owner(self) -> asyncio.Task[Any] | None:
        """Register the current task as the one that iterates; two running tasks never share a topic."""
        owners: dict[str, asyncio.Task[Any] | None] = vars(self._adapter.app).setdefault("shoal_owners", {})
        present, current = owners.get(self._adapter.topic), asyncio.current_task()
        if present is not None and not present.done() and present is not current:
            # Refused here and not at the start of the stage: an app that is stopped while it starts may hang.
            raise ConfigError(
                f"anonymize: topic {self._adapter.topic} has a stage already; an app may have one stage for each topic"
            )
        owners[self._adapter.topic] = current
        return current


def anonymize(
    stream: Any,  # noqa: ANN401 - Faust's types say little
    policy: str | Path | Policy,
    *,
    to: Any = None,  # noqa: ANN401
    start: Literal["earliest", "latest"] | None = None,
    skip_to_end: bool = False,
    skip_lost: bool = False,
    http: str | None = None,
) -> Clusters:
    """Release a stream of personal records in clusters of at least k people.

    Parameters
    ----------
    stream : faust.Stream
        The stream that the agent gets, of one topic that is declared with ``acks=False``. Its values may be records
        (models), dicts or bytes. The stage reads the bytes of the topic: the policy decides what a valid record is.
    policy : str, Path or Policy
        The policy file of `shoal run`. Its group must be the app's id and its input the topic. Group, input and
        brokers may be omitted; then they are the app's.
    to : str or topic, optional
        The topic to which the records are published, exactly once. Without it nothing is published.
    start : {"earliest", "latest"}, optional
        Where a partition without committed progress begins. Committed progress takes precedence.
    skip_to_end : bool
        If a partition cannot continue at its committed progress, begin at its end and count the skipped offsets.
    skip_lost : bool
        If records that wait were deleted, go on at the first retained record and count the deleted ones.
    http : str, optional
        ``HOST:PORT`` for metrics, probes and the status page. Each worker on a machine needs its own port.

    Returns
    -------
    Clusters
        An asynchronous iterator of `Cluster`.

    Raises
    ------
    ConfigError
        Stream, policy and app do not fit together. A `PolicyError` lists every fault of the policy.

    Notes
    -----
    Guarantee with ``to``: that of `shoal run`, with the same progress, transactions and fencing. The iterator returns
    a cluster after it is committed to the topic. After a crash it is not returned again, even if it was not returned
    before. With ``release: ordered`` the iterator returns a cluster when it is decided; its records are published
    later, one by one in the order of the input.

    Guarantee without ``to``: a cluster counts as released when the next one is asked for. It is committed within
    ``commit_interval_ms`` after the last cluster that was decided together with it. These are one or two clusters
    while records keep arriving, and up to delta / k for each partition after a pause of ``max_delay_s``. A crash
    repeats the clusters that were not committed, with the same partition, number and bytes. No cluster is skipped.

    Memory: a few thousand records, for any amount of input and however long the app works on a cluster.

    One task asks for clusters; a second one that asks at the same time is refused. If the agent leaves its loop or
    ends, the app is stopped ten seconds later: otherwise it would keep its partitions and process no record.
    """
    join_logs()
    options = StartOptions(reset=start, skip_to_end=skip_to_end, skip_lost=skip_lost)
    try:
        return _clusters(stream, policy, to, options, http)
    except ShoalError as error:
        # Without this, Faust would restart the agent repeatedly, and no record would be processed.
        app = find_app(stream)
        if app is not None and app.started:
            _STOPPING.append(asyncio.ensure_future(stop_app(app, error)))
        raise


def _clusters(stream: Any, policy: str | Path | Policy, to: Any, start: StartOptions, http: str | None) -> Clusters:  # noqa: ANN401
    loaded = policy if isinstance(policy, Policy) else Policy.load(policy)
    source = "policy" if isinstance(policy, Policy) else str(policy)
    loaded.require_stream(source)
    check_policy(loaded, source)
    adapter = FaustAdapter(stream)
    target = None if to is None else to if isinstance(to, str) else to.get_topic_name()
    if target is None and loaded.require_stream(source).is_ordered:
        message = "ordered: records can be released in order to a topic only; give to=, or use cluster"
        raise PolicyError([Fault(("stream", "release"), message)], source)
    settings = _settings(loaded, adapter, target)
    metrics = Metrics(str(settings.group))
    context = WorkerContext(loaded, settings, metrics, Health(), start, MetadataCipher.of(settings))
    return Clusters(adapter, context, http, publishes=target is not None)


def _settings(policy: Policy, adapter: FaustAdapter, target: str | None) -> KafkaSection:
    """Return the settings of policy and environment, with the app's values for those that neither sets."""
    fixed = {"input": adapter.topic, "group": adapter.group} | ({} if target is None else {"output": target})
    settings = kafka_settings(
        policy,
        defaults={"bootstrap_servers": adapter.brokers} | fixed,
        required=("bootstrap_servers", "input", "group"),
        no_topics="a Faust stage reads one topic, that of its stream; remove kafka.topics, or use shoal run",
    )
    faults = [
        (("kafka", name), f"the app says {value}, the policy says something else; they must be the same")
        for name, value in fixed.items()
        if getattr(settings, name) != value
    ]
    if faults:
        raise settings_error(faults, policy)
    return settings
