"""The list of nightly faults of a cluster, each with the outcome that was expected before its first run."""

from __future__ import annotations

from dataclasses import dataclass

GOES_ON = "no worker ends; the workers continue when another broker leads"
STATE_GOES_ON = "a killed worker is replaced; the other one takes its partitions meanwhile"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in a few words, and the expected outcome."""

    what: str
    expected: str


FAULTS = {
    "output-leader": Fault("kill -9 of the leader of an output partition, three times", GOES_ON),
    "group-coordinator": Fault("kill -9 of the leader of the group's `__consumer_offsets`, three times", GOES_ON),
    "transaction-coordinator": Fault("kill -9 of the leader of a `__transaction_state`, three times", GOES_ON),
    "offline-partition": Fault(
        "kill -9 of the only broker of an input partition, and a start of the worker meanwhile",
        "the other partition goes on, and this one when its broker is back; the worker does not end",
    ),
    "stage-offline-partition": Fault(
        "the same for a stage of a Faust app, and for two partitions",
        "the other partition goes on, and these when their broker is back; the worker does not end",
    ),
    "two-of-three": Fault(
        "two of three brokers killed, and started again after 20 s",
        "no worker ends; the workers continue when two brokers run",
    ),
    "rolling-brokers": Fault("rolling restart of the brokers with SIGTERM", GOES_ON),
    "paused-broker": Fault("the leader of an output partition paused for 20 s, then resumed", GOES_ON),
    "cut-worker": Fault(
        "network cut between the workers and all brokers for 20 s",
        "no worker ends; the workers continue when the network is back",
    ),
    "cut-one-broker": Fault(
        "network cut between the workers and one broker for 20 s, while it leads",
        "no worker ends; its partitions wait, and continue when the network is back",
    ),
    "cut-brokers": Fault(
        "network cut between one broker and the two others for 20 s", "no worker ends; the two others take over"
    ),
    "disk-full": Fault(
        "full disk of the leader of an output partition, later freed, and the broker started again",
        "the broker ends; no worker ends; the two others take over",
    ),
    "unclean-output": Fault(
        "unclean election: the new leader of an output partition lacks its last transactions",
        "the worker refuses or continues, and says so; no record is twice. What the brokers have lost is lost",
    ),
    "unclean-offsets": Fault(
        "unclean election: the new leader of `__consumer_offsets` lacks the last commits",
        "a start after it is refused and says why: the output holds records after the commit. No record twice",
    ),
    "unclean-offsets-append-time": Fault(
        "the same unclean election of `__consumer_offsets`, while the brokers date the output (LogAppendTime)",
        "a start after it is refused and says why: the output holds records after the commit. No record twice",
    ),
    "unclean-offsets-copy": Fault(
        "the same unclean election of `__consumer_offsets`, with a copy of the progress",
        "a start after it continues from the copy; no record is lost or twice",
    ),
    "unclean-input": Fault(
        "unclean election: the new leader of an input partition lacks records that were read",
        "the worker refuses and says why; no record is published twice",
    ),
    "rolling-versions": Fault(
        "rolling restart of workers from an older commit to this one and back, under load",
        "both versions continue the progress of the other",
    ),
    "offsets-expired": Fault(
        "the offsets of the group expire while no worker runs",
        "a start is refused, as the output holds records; after an import of the last export the workers continue",
    ),
    "transactional-ids-expired": Fault(
        "the transactional ids expire while the workers have nothing to publish",
        "no worker ends; the workers continue with the next record",
    ),
    "append-time-clock": Fault(
        "topics with LogAppendTime, and the clock of the workers two hours ahead and back",
        "no worker ends; the workers continue",
    ),
    "compacted-input": Fault(
        "kill -9 of workers six times, over an input that is compacted meanwhile",
        "a held record that compaction removes is suppressed; each remaining record has one outcome",
    ),
    "kills-ordered": Fault("kill -9 of workers eight times, a restart of a broker, `release: ordered`", STATE_GOES_ON),
    "kills-per-subject": Fault("kill -9 of workers eight times, a restart of a broker, `per_subject`", STATE_GOES_ON),
    "kills-copy": Fault("kill -9 of workers eight times, a restart of a broker, a copy of the progress", STATE_GOES_ON),
    "kills-sealed": Fault(
        "kill -9 of workers eight times, a restart of a broker, encrypted progress, its key replaced meanwhile",
        STATE_GOES_ON,
    ),
    "kills-iterator": Fault(
        "kill -9 of Faust workers with an iterator eight times, and a restart of a broker",
        "the iterator repeats clusters that were not committed, and the same ones; no record is in two clusters",
    ),
    "hundred-kills": Fault(
        "kill -9 of workers 100 times and 11 restarts of brokers in one run, every second one with kill -9",
        STATE_GOES_ON,
    ),
}
"""Each nightly fault by its name. The words of `what` are the key of its row: they occur once."""
