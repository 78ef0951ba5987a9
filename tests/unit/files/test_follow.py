"""`shoal pipe --follow`: clusters are written whole as soon as they are decided; incomplete lines are awaited."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, chdir, contextmanager
from pathlib import Path
from typing import Any

import pytest
from shoal.audit import verify
from shoal.files import Files
from shoal.policy import Policy
from support.by_night import at_night
from support.commands import FollowingThread, on_full_disk, without_notice

pytestmark = pytest.mark.unit

POLICY: dict[str, Any] = {
    "attributes": {
        "who": {"role": "identifier", "subject": True},
        "age": {"role": "quasi_identifier", "bounds": [0, 110], "integer": True},
        "ill": {"role": "confidential", "type": "string"},
    },
    "privacy": {"k": 3},
    "stream": {"delta": 10},
}


def wait(condition: Callable[[], object], what: str, timeout_s: float = 150) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def lines(first: int, end: int) -> bytes:
    return b"".join(b'{"who":"p%d","age":%d,"ill":"i%d"}\n' % (i, i * 31 % 111, i) for i in range(first, end))


@contextmanager
def following(
    folder: Path, *arguments: str, policy: dict[str, Any] = POLICY, room: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command; ``room`` is the largest size of a file in bytes, as on a full disk."""
    (folder / "policy.yaml").write_text(json.dumps(policy))
    command = [sys.executable, "-m", "shoal.cli", "pipe", str(folder / "policy.yaml"), "--follow", *arguments]
    if room is not None:
        command = [*on_full_disk(room), *command]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder, bufsize=0
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@contextmanager
def following_here(
    folder: Path, source: str, target: str, *, policy: dict[str, Any] = POLICY, summary: str | None = None
) -> Iterator[FollowingThread]:
    """Run it in a thread, in the folder: for tests of what is read and written, not of the process."""
    (folder / "policy.yaml").write_text(json.dumps(policy))
    form = None if Path(source).suffix in {".csv", ".jsonl"} else "jsonl"
    with chdir(folder):
        thread = FollowingThread(folder / "policy.yaml", Files(source, target, form, None, summary))
        try:
            yield thread
        finally:
            thread.kill()


def stopped(process: subprocess.Popen[bytes] | FollowingThread, number: int = signal.SIGTERM) -> tuple[int, str]:
    process.send_signal(number)
    _, stderr = process.communicate(timeout=150)
    assert process.returncode is not None
    return process.returncode, without_notice(stderr).decode()


def is_paused(process: subprocess.Popen[bytes] | FollowingThread) -> bool:
    assert isinstance(process, subprocess.Popen)
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def rows(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


@pytest.mark.parametrize("number", [signal.SIGTERM, *at_night(signal.SIGINT)])
def test_a_growing_file_is_followed_until_a_signal(tmp_path: Path, number: int) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(lines(0, 60))
    names = ("--evidence", "evidence.jsonl", "--summary", "summary.json", "--quarantine", "q.jsonl")
    with following(tmp_path, "-i", "in.jsonl", "-o", "out.jsonl", *names) as process:
        wait(lambda: rows(out) >= 40, "the first clusters")
        before = rows(out)
        with source.open("ab", buffering=0) as file:
            file.write(lines(60, 100))
            wait(lambda: rows(out) > before + 20, "clusters of what was appended")
            file.write(lines(100, 101)[:-9])
            file.flush()
            assert not (tmp_path / "summary.json").exists()
            code, stderr = stopped(process, number)
    assert code == 0
    assert re.fullmatch(r"shoal: 100 in, .*; next: shoal verify \S+ .*--evidence evidence.jsonl .*\n", stderr)
    assert json.loads((tmp_path / "summary.json").read_text())["records_in"] == 100
    # The line that was incomplete at the signal was not read.
    source.write_bytes(lines(0, 100))
    evidence, summary, quarantine = (tmp_path / name for name in ("evidence.jsonl", "summary.json", "q.jsonl"))
    policy = Policy.load(tmp_path / "policy.yaml")
    verdict = verify(policy, source, out, evidence, summary, quarantine=quarantine)
    assert verdict.exit_code == 0, verdict.text()
    assert evidence.stat().st_mode & 0o077 == 0


def test_an_incomplete_line_is_awaited(tmp_path: Path) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_bytes(b"who,age,ill\n" + b"".join(b"p%d,40,i\n" % i for i in range(11)) + b"p11,4")
    with following_here(tmp_path, "in.csv", "out.csv", summary="s.json") as process:
        wait(lambda: rows(out) >= 1, "the header")
        with source.open("ab") as file:
            file.write(b'0,"half\n')
        with source.open("ab") as file:
            file.write(b'and half"\n' + b"".join(b"q%d,40,i\n" % i for i in range(24)))
        wait(lambda: b"half" in out.read_bytes(), "the record that came in two parts")
        assert stopped(process) == (0, "")
    assert json.loads((tmp_path / "s.json").read_text())["quarantined"] == {}
    assert b'40,"half\nand half"\n' in out.read_bytes()


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252"])
def test_a_file_in_another_encoding_is_followed(tmp_path: Path, encoding: str) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    text = "who,age,ill\n" + "".join(f"p{i},40,ï{i}\n" for i in range(30))
    source.write_bytes(text.encode(encoding))
    policy = POLICY | {"csv": {"encoding": encoding, "output": {"encoding": "utf-8"}}}
    with following_here(tmp_path, "in.csv", "out.csv", policy=policy) as process:
        wait(lambda: rows(out) >= 10 or process.poll() is not None, "clusters")
        assert stopped(process) == (0, "")
    assert "40,ï29\n" in out.read_text(encoding="utf-8")


def test_standard_input_ends_when_its_writers_have_closed_it(tmp_path: Path) -> None:
    with following(tmp_path, "--format", "jsonl") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines(0, 30))
        first = os.read(process.stdout.fileno(), 1 << 16)
        assert first.endswith(b"\n")
        rest, stderr = process.communicate(lines(30, 40), timeout=150)
        assert process.returncode == 0
        assert without_notice(stderr).startswith(b"shoal: 40 in, 40 out, ")
        assert b"next:" not in stderr, "without evidence nothing can be verified"
    assert len((first + rest).splitlines()) == 40


def test_a_fifo_does_not_end_with_its_writers(tmp_path: Path) -> None:
    fifo, out = tmp_path / "in.fifo", tmp_path / "out.jsonl"
    os.mkfifo(fifo)
    with following_here(tmp_path, "in.fifo", "out.jsonl") as process:
        for turn in range(3):
            fifo.write_bytes(lines(30 * turn, 30 * turn + 30))
            wait(lambda least=30 * turn + 15: rows(out) >= least, "clusters")  # type: ignore[misc]
        assert stopped(process) == (0, "")
    assert rows(out) == 90


def test_overdue_records_are_flushed_without_new_data(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    (tmp_path / "in.jsonl").write_bytes(lines(0, 5))
    policy = POLICY | {"stream": {"delta": 10, "max_delay_s": 0.3}}
    with following_here(tmp_path, "in.jsonl", "out.jsonl", policy=policy) as process:
        wait(lambda: rows(out) == 5, "what was held")
        with (tmp_path / "in.jsonl").open("ab") as file:
            file.write(lines(5, 9))
        wait(lambda: rows(out) == 9, "what was held later")
        assert stopped(process) == (0, "")


@pytest.mark.parametrize("change", ["was truncated", "written again", "removed", "replaced"])
def test_a_changed_file_ends_the_command_with_2(tmp_path: Path, change: str) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(lines(0, 30))
    begun: AbstractContextManager[subprocess.Popen[bytes] | FollowingThread] = (
        following(tmp_path, "-i", "in.jsonl", "-o", "out.jsonl", "--summary", "s.json")
        if change == "written again"  # which needs a process that can be stopped meanwhile
        else following_here(tmp_path, "in.jsonl", "out.jsonl", summary="s.json")
    )
    with begun as process:
        wait(lambda: rows(out) >= 10, "clusters")
        if change == "was truncated":
            os.truncate(source, 10)
        elif change == "written again":
            # The process is stopped meanwhile: it never sees the file shorter than before.
            process.send_signal(signal.SIGSTOP)
            wait(lambda: is_paused(process), "the pause")
            source.write_bytes(lines(100, 200))
            process.send_signal(signal.SIGCONT)
        elif change == "removed":
            source.unlink()
        else:
            (tmp_path / "new").write_bytes(lines(0, 3))
            (tmp_path / "new").replace(source)
        _, stderr = process.communicate(timeout=150)
    assert process.returncode == 2
    assert change in stderr.decode()
    assert without_notice(stderr).startswith(b"shoal: in.jsonl: ")
    # All records that were read are released, and the summary counts them.
    assert rows(out) == json.loads((tmp_path / "s.json").read_text())["released"] == 30


@pytest.mark.parametrize(
    ("given", "before", "words"),
    [
        (None, None, b"shoal: in.csv: is a folder without files\n"),
        (b"who,age,ill\n", b"age,ill\n", b"shoal: out.csv: is not empty"),
        (b"who,ill\n", None, b"column 'age' is missing"),
    ],
)
def test_files_that_cannot_be_followed_are_refused_and_left_as_they_are(
    given: bytes | None, before: bytes | None, words: bytes, tmp_path: Path
) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.mkdir() if given is None else source.write_bytes(given)
    if before is not None:
        out.write_bytes(before)
    with following_here(tmp_path, "in.csv", "out.csv") as process:
        _, stderr = process.communicate(timeout=150)
    assert process.returncode == 2
    assert words in without_notice(stderr)
    assert (out.read_bytes() if out.exists() else None) == before


def test_after_a_kill_the_output_has_whole_clusters_only(tmp_path: Path) -> None:
    out, evidence = tmp_path / "out.jsonl", tmp_path / "evidence.jsonl"
    with following(tmp_path, "--format", "jsonl", "-o", "out.jsonl", "--evidence", "evidence.jsonl") as process:
        assert process.stdin is not None
        process.stdin.write(lines(0, 600))
        wait(lambda: rows(out) > 30, "clusters")
        process.kill()
        process.wait(30)
    sizes = [len(json.loads(line)["offsets"]) for line in evidence.read_bytes().splitlines()]
    assert out.read_bytes().endswith(b"\n")
    # Only the last cluster can have evidence without rows.
    assert rows(out) in {sum(sizes), sum(sizes[:-1])}


@pytest.mark.parametrize("room", [900, *at_night(500, 1300)])
def test_a_full_disk_leaves_whole_clusters_with_evidence(tmp_path: Path, room: int) -> None:
    out, evidence = tmp_path / "out.csv", tmp_path / "evidence.jsonl"
    policy = POLICY | {"privacy": {"k": 3}}
    text = "".join(f"p{i},{i * 31 % 111},{'x' * 100}\n" for i in range(200))
    (tmp_path / "in.csv").write_text("who,age,ill\n" + text)
    names = ("--evidence", "evidence.jsonl", "--summary", "s.json")
    with following(tmp_path, "-i", "in.csv", "-o", "out.csv", *names, policy=policy, room=room) as process:
        _, stderr = process.communicate(timeout=150)
    assert (process.returncode, without_notice(stderr)) == (2, b"shoal: out.csv: File too large\n")
    assert not (tmp_path / "s.json").exists()
    assert out.stat().st_size > room - 500, "it was filled nearly to the end"
    assert out.read_bytes().endswith(b"\n")
    sizes = [len(json.loads(line)["offsets"]) for line in evidence.read_bytes().splitlines()]
    # The cluster that did not fit was removed as a whole.
    assert rows(out) - 1 == sum(sizes[:-1])
