"""What a soak released, counted from outside, and the verdict of `shoal verify` on each partition."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from numpy.typing import NDArray
from soak_records import is_malformed, person_of

__all__ = ["Findings", "Topics", "judge"]

SHOAL = str(Path(sys.executable).with_name("shoal"))
VERIFY_S = 3600.0


class Topics(NamedTuple):
    """Names of the topics; each has as many partitions as the input."""

    input: str
    output: str
    quarantine: str
    evidence: str


class Findings(NamedTuple):
    """Counts of records and clusters; ``verified`` is the number of partitions that `shoal verify` accepted."""

    records: int
    released: int
    suppressed: int
    quarantined: int
    twice: int
    lost: int
    clusters: int
    under_k: int
    verified: int

    @property
    def is_sound(self) -> bool:
        """Whether each record has one outcome and each cluster enough persons."""
        return self.twice == self.lost == self.under_k == 0 and self.clusters > 0


async def read(bootstrap: str, topic: str, partition: int) -> AsyncIterator[ConsumerRecord]:
    """Yield the committed messages of a partition as it ends now."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        tp = TopicPartition(topic, partition)
        consumer.assign([tp])
        end = (await consumer.end_offsets([tp]))[tp]
        while await consumer.position(tp) < end:
            for message in (await consumer.getmany(timeout_ms=200)).get(tp, []):
                yield message
    finally:
        await consumer.stop()


async def judge(
    bootstrap: str, topics: Topics, partitions: int, sent: int, k: int, policy: Path, folder: Path
) -> Findings:
    """Read all topics, count the outcomes of each record, and verify one partition after the other."""
    outcomes = np.zeros(sent, np.int64)
    released = suppressed = clusters = under_k = verified = 0
    for partition in range(partitions):
        files = {name: folder / f"{name}.jsonl" for name in Topics._fields}
        with files["output"].open("w") as output:
            async for message in read(bootstrap, topics.output, partition):
                outcomes[json.loads(message.value)["serial"]] += 1
                released += 1
                output.write(json.dumps({"partition": partition, "value": message.value.decode()}) + "\n")
        with files["quarantine"].open("w") as quarantine:
            async for message in read(bootstrap, topics.quarantine, partition):
                reference = json.loads(message.value)
                outcomes[reference["offset"] * partitions + partition] += 1
                suppressed += reference["reason"] == "suppressed"
                quarantine.write(message.value.decode() + "\n")
        with files["evidence"].open("w") as evidence:
            async for message in read(bootstrap, topics.evidence, partition):
                offsets = json.loads(message.value)["offsets"]
                clusters += 1
                under_k += len({person_of(offset * partitions + partition) for offset in offsets}) < k
                evidence.write(message.value.decode() + "\n")
        with files["input"].open("w") as original:
            async for message in read(bootstrap, topics.input, partition):
                line = {"partition": partition, "offset": message.offset, "value": message.value.decode()}
                original.write(json.dumps(line) + "\n")
        verified += _is_accepted(policy, files, folder)
    return Findings(
        sent,
        released,
        suppressed,
        _count_malformed(outcomes),
        int((outcomes > 1).sum()),
        int((outcomes == 0).sum()),
        clusters,
        under_k,
        verified,
    )


def _count_malformed(outcomes: NDArray[np.int64]) -> int:
    return sum(1 for serial in range(len(outcomes)) if is_malformed(serial) and outcomes[serial])


def _is_accepted(policy: Path, files: dict[str, Path], folder: Path) -> bool:
    """Return whether `shoal verify` accepts the release of a partition."""
    command: list[str | Path] = [SHOAL, "verify", policy, "--topic", "--original", files["input"]]
    command += [
        "--released",
        files["output"],
        "--evidence",
        files["evidence"],
        "--quarantine",
        files["quarantine"],
        "--json",
        folder / "verdict.json",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=VERIFY_S, check=False)
    if done.returncode:
        print(done.stdout.decode(), file=sys.stderr)
    return done.returncode == 0
