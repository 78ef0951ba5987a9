"""The image, built and run by the instructions of the Dockerfile without a container engine (see `image_root`)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.commands import run_command
from support.image_root import AS_ROOT, Image
from support.kafka_broker import wait_until
from support.running import Stage

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "deploy" / "image" / "requirements.txt"
READY_S = 8.0
"""Processor time until a worker is ready that compiles nothing. Rule `nearest` alone takes 10 s to compile."""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return Image.build(tmp_path_factory.mktemp("image"), "service")


def finished(image: Image, *command: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end in the read-only root, as the user of the image."""
    return subprocess.run(image.command(command, is_read_only=True), input=stdin, capture_output=True, check=False)


class Container:
    """A worker in the read-only root, as the image starts it.

    It shares the network of this machine.
    """

    def __init__(self, image: Image, log: Path, variables: dict[str, str]) -> None:
        self.began_s, self._image, self._log = time.monotonic(), image, log
        self._variables = variables | {"SHOAL_HTTP": "127.0.0.1:0"}
        command = image.command(image.arguments(), self._variables, is_read_only=True)
        with log.open("wb") as target:
            self.process = subprocess.Popen(command, stderr=target)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text(encoding="utf-8").splitlines()]

    @property
    def address(self) -> str:
        (started,) = [line for line in self.lines if line["event"] == "started"] or [{"http_port": 1}]
        return f"127.0.0.1:{started['http_port']}"

    @property
    def pid(self) -> int:
        """The worker itself: the process that the last of the commands before it started."""
        pid = self.process.pid
        while children := self._of_process(pid, f"task/{pid}/children").split():
            pid = int(children[0])
        return pid

    @property
    def processor_s(self) -> float:
        fields = self._of_process(self.pid, "stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def users(self) -> list[str]:
        """The numbers of its user and group: real, effective, saved, of the file system."""
        status = self._of_process(self.pid, "status")
        return re.findall(r"^[UG]id:\t(.*)$", status, re.MULTILINE)

    @staticmethod
    def _of_process(pid: int, name: str) -> str:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="ascii")

    def asked(self, *options: str) -> int:
        """Return the exit code of `shoal health` in the same root."""
        variables = self._variables | {"SHOAL_HTTP": self.address}
        command = self._image.command(self._image.arguments("health", *options), variables, is_read_only=True)
        return subprocess.run(command, capture_output=True, check=False).returncode

    def terminated(self) -> int:
        subprocess.run([*AS_ROOT, "kill", "-TERM", str(self.pid)], check=True)
        return self.process.wait(60)

    async def is_ready(self) -> bool:
        try:
            async with aiohttp.ClientSession() as client, client.get(f"http://{self.address}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False


async def test_a_worker_is_ready_at_once_as_another_user_on_a_read_only_root(image: Image, stage: Stage) -> None:
    policy = image.root / "etc/shoal/policy.yaml"
    policy.parent.mkdir(exist_ok=True)
    policy.write_text(json.dumps(stage.document), encoding="utf-8")
    await stage.put(60)
    variables = {"SHOAL_FROM": "earliest", "SHOAL_KAFKA__BOOTSTRAP_SERVERS": stage.bootstrap}
    container = Container(image, stage.folder / "log", variables)
    try:
        await wait_until(container.is_ready, 120, "readiness")
        ready_s, used_s = time.monotonic() - container.began_s, container.processor_s
        await wait_until(stage.read, 60, "released records")
        assert (container.asked(), container.asked("--ready")) == (0, 0)
        assert container.users == ["10001\t10001\t10001\t10001"] * 2
    finally:
        code = container.terminated()
    assert code == 0
    assert container.lines[-1]["event"] == "stopped"
    assert [line for line in container.lines if "compiling" in line["event"]] == []
    print(f"ready after {ready_s:.1f} s, {used_s:.1f} s of processor time")
    assert used_s < READY_S


def test_no_kernel_of_any_rule_is_missing(image: Image) -> None:
    done = finished(image, *image.arguments("warm"))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["event"], line["compiled_s"]) for line in lines] == [("kernels are ready", 0.0)] * 5


def test_only_temporary_files_can_be_written(image: Image) -> None:
    places = ". etc opt opt/shoal usr usr/local var var/cache var/cache/shoal tmp"
    done = finished(image, "/bin/sh", "-c", f"cd /; for place in {places}; do test ! -w $place || echo $place; done")
    assert done.stdout == b"tmp\n", done.stderr


def test_there_is_no_pip(image: Image) -> None:
    for python in ("/usr/local/bin/python", "/opt/shoal/bin/python"):
        for name in ("pip", "ensurepip"):
            done = finished(image, python, "-c", f"import {name}")
            assert f"No module named '{name}'".encode() in done.stderr


def test_what_is_installed_is_what_the_lock_file_and_the_bill_of_materials_say(image: Image) -> None:
    program = "from importlib.metadata import distributions as d; print(*sorted(f'{x.name}=={x.version}' for x in d()))"
    installed = {normal(one) for one in finished(image, "python", "-c", program).stdout.decode().split()}
    locked = {normal(one) for one in re.findall(r"^(\S+==\S+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)}
    bill = json.loads((image.root / "opt/shoal/sbom.cdx.json").read_text(encoding="utf-8"))
    listed = {normal(f"{one['name']}=={one['version']}") for one in bill["components"]}
    main = bill["metadata"]["component"]
    assert bill["bomFormat"] == "CycloneDX"
    assert len(locked) > 20
    assert listed == locked
    assert installed == locked | {normal(f"{main['name']}=={main['version']}")}


def normal(requirement: str) -> str:
    """Return a pinned requirement with its name as the index spells it."""
    name, _, version = requirement.partition("==")
    return f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}"


def test_kernels_for_every_processor_publish_the_same_bytes(image: Image) -> None:
    policy = (ROOT / "docs/quickstart/policy.yaml").read_bytes()
    records = (ROOT / "docs/quickstart/visits.csv").read_bytes()
    (image.root / "etc/visits.yaml").write_bytes(policy)
    released = finished(image, "shoal", "pipe", "/etc/visits.yaml", "--format", "csv", stdin=records)
    usual = run_command("pipe", str(ROOT / "docs/quickstart/policy.yaml"), "--format", "csv", stdin=records)
    assert released.returncode == 0, released.stderr
    assert len(released.stdout.splitlines()) == 17
    assert released.stdout == usual.stdout
