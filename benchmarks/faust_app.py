"""One Faust worker for one measurement: `python faust_app.py worker`, told what to do by BENCH, a JSON object.

It takes ``records`` records and then notes in ``result`` how fast that was, between the first and the last of them.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import faust
from shoal.policy import Policy
from shoal.policy.schema import Document
from shoal.stage import anonymize

ORDER: dict[str, Any] = json.loads(os.environ["BENCH"])

app = faust.App(
    ORDER["group"],
    broker=f"kafka://{ORDER['bootstrap']}",
    datadir=tempfile.mkdtemp(),
    topic_allow_declare=True,
)
source = app.topic(ORDER["source"], acks=ORDER["form"] == "bare")
target = app.topic(ORDER["target"])


class Clock:
    """Counts records, and stops the process at the last one."""

    def __init__(self) -> None:
        self.count = 0
        self.began = self.cpu = 0.0

    def add(self, records: int) -> None:
        """Count some in; the first ones only start the clock."""
        if not self.began:
            self.began, self.cpu = time.monotonic(), time.process_time()
            return
        self.count += records
        if self.count >= ORDER["records"]:
            elapsed, cpu = time.monotonic() - self.began, time.process_time() - self.cpu
            found = {"per_s": self.count / elapsed, "cpu_us": cpu / self.count * 1e6}
            Path(ORDER["result"]).write_text(json.dumps(found))
            os._exit(0)


@app.agent(source)
async def work(stream: Any) -> None:  # noqa: ANN401 - Faust's types say little
    """Forward what was parsed, or what the stage makes of it."""
    clock = Clock()
    if ORDER["form"] == "bare":
        async for value in stream:
            await target.send(value=value)
            clock.add(1)
        return
    policy = Policy.from_document(Document.model_validate(ORDER["policy"]))
    to = target if ORDER["form"] == "to" else None
    async for cluster in anonymize(stream, policy, to=to, start="earliest"):
        clock.add(cluster.size)


if __name__ == "__main__":
    app.main()
