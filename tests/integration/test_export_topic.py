"""docs/export_topic.py writes the exports that `shoal verify` reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from support.running import Stage

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"input": "original", "output": "release", "evidence": "lines", "quarantine": "lines"}


def exported(stage: Stage, folder: Path) -> dict[str, Path]:
    """Run the script for each topic; return the files by the role of the topic."""
    environment = os.environ | {"SHOAL_KAFKA__BOOTSTRAP_SERVERS": stage.bootstrap}
    script, policy = ROOT / "docs" / "export_topic.py", stage.policy_file()
    files = {role: folder / f"{role}.jsonl" for role in KINDS}
    for role, kind in KINDS.items():
        command = [sys.executable, str(script), str(policy), stage.topics[role], kind]
        done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, b"")
        files[role].write_bytes(done.stdout)
    return files


def judged(stage: Stage, files: dict[str, Path]) -> subprocess.CompletedProcess[bytes]:
    names = {"--original": "input", "--released": "output", "--evidence": "evidence", "--quarantine": "quarantine"}
    arguments = [word for option, role in names.items() for word in (option, str(files[role]))]
    command = [str(Path(sys.executable).with_name("shoal")), "verify", str(stage.policy_file()), *arguments]
    return subprocess.run(command, capture_output=True, check=False, timeout=60)


async def test_the_exports_of_all_topics_are_judged_sound(bootstrap: str, tmp_path: Path) -> None:
    stage = await Stage.create(bootstrap, tmp_path, partitions=2)
    record_ids = await stage.put(40, 0, 1)
    record_ids += await stage.send([b'{"age": "\xff"}'])
    await stage.drained(record_ids)
    files = exported(stage, tmp_path)
    released = [json.loads(line) for line in files["output"].read_text().splitlines()]
    assert len(released) == len(await stage.read())
    assert all(isinstance(row["value"], str) for row in released)
    verdict = judged(stage, files)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
