"""The image, built and run by the instructions of the Dockerfile in folders, without a container engine.

The base image is replaced by this machine: ``/usr`` is the machine's, read only, and ``/usr/local`` is the installation
of the Python that runs the tests, with changes kept in the folder of the stage. Each command runs in a mount namespace
of its own, so the user must be root, or ``sudo`` must ask for no password. Instructions that are not known raise an
error, so a test that builds an image has run every instruction that it needs.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import aiohttp
import pytest
from support.commands import run_command
from support.kafka_broker import wait_until
from support.running import Stage

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]

# ---------------------------------------------------------------- the image

AS_ROOT = () if os.geteuid() == 0 else ("sudo", "-n")
PASSED_ON = ("PIP_CERT", "PIP_INDEX_URL", "SSL_CERT_FILE", "http_proxy", "https_proxy", "no_proxy")
"""Variables that pip may need to reach its index."""
FROM_ETC = ("passwd", "group", "shadow", "gshadow", "login.defs", "nsswitch.conf", "hosts", "resolv.conf", "ssl")
METADATA = ("CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "STOPSIGNAL")
"""Instructions that only describe the image."""

MOUNT = """
set -eu
root=$1 upper=$2 work=$3 prefix=$4 is_read_only=$5
shift 5
mount --bind "$root" "$root"
mount --bind -o ro /usr "$root/usr"
mount -t overlay overlay -o "lowerdir=$prefix,upperdir=$upper,workdir=$work" "$root/usr/local"
mount --bind /dev "$root/dev"
mount -t proc proc "$root/proc"
if [ "$is_read_only" = yes ]; then
    mount -o remount,bind,ro "$root"
    mount -o remount,ro "$root/usr/local"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
fi
exec chroot "$root" "$@"
"""


@dataclass
class BuildStage:
    """A stage of the Dockerfile: its instructions, and what they set."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def last(self, keyword: str) -> str:
        """Return the argument of the last instruction of this kind."""
        return [rest for word, rest in self.instructions if word == keyword][-1]


def parse(text: str) -> dict[str, BuildStage]:
    """Return the stages of a Dockerfile by name; the last one, which has no name, under an empty text."""
    stages: dict[str, BuildStage] = {}
    arguments: dict[str, str] = {}
    name = ""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    for line in filter(str.strip, lines.splitlines()):
        keyword, _, rest = line.partition(" ")
        words = rest.split()
        if keyword == "FROM":
            name = words[2] if len(words) > 1 else ""
            stages[name] = BuildStage(name, Template(words[0]).substitute(arguments))
        elif keyword == "ARG" and not stages:
            arguments[rest.partition("=")[0]] = rest.partition("=")[2]
        else:
            stages[name].instructions.append((keyword, rest.strip()))
    return stages


@dataclass
class Image:
    """One stage as folders, with the variables, user and working folder that its instructions have set."""

    folder: Path
    stages: Mapping[str, BuildStage]
    name: str
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": "/usr/local/bin:/usr/bin:/usr/sbin:/bin"})
    user: str = "0:0"
    working: str = "/"
    built: dict[str, Image] = field(default_factory=dict)

    @classmethod
    def build(cls, folder: Path, name: str, dockerfile: Path = ROOT / "Dockerfile") -> Image:
        """Build a stage, and the stages that it needs."""
        return cls(folder, parse(dockerfile.read_text(encoding="utf-8")), name)._build()

    @property
    def root(self) -> Path:
        return self.folder / self.name / "root"

    @property
    def upper(self) -> Path:
        return self.folder / self.name / "local"

    def arguments(self, *command: str) -> list[str]:
        """Return the arguments of the process of a container: of the given command, or of that of the stage."""
        stage = self.stages[self.name]
        return [*json.loads(stage.last("ENTRYPOINT")), *(command or json.loads(stage.last("CMD")))]

    def command(
        self, arguments: Sequence[str], environment: Mapping[str, str] | None = None, *, is_read_only: bool = False
    ) -> list[str]:
        """Return the command that runs a process in this root as process 1, as the user of the stage."""
        variables = self.environment | dict(environment or {})
        user, _, group = self.user.partition(":")
        as_user = ["/usr/bin/setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]
        if user != "0":
            as_user += ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        return [
            *(*AS_ROOT, "unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child"),
            *("sh", "-c", MOUNT, "sh", str(self.root), str(self.upper), f"{self.upper}.work", sys.base_prefix),
            *("yes" if is_read_only else "no", *as_user, "env", "-i"),
            *(f"{name}={text}" for name, text in variables.items()),
            *arguments,
        ]

    def run(self, script: str) -> None:
        """Run a command of the shell, as instruction RUN does."""
        passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        script = f"cd {self.working} && {script}"
        done = subprocess.run(
            self.command(["/bin/sh", "-c", script], passed_on), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"

    def _build(self) -> Image:
        stage = self.stages[self.name]
        if stage.base in self.stages:
            self._continue(self._stage(stage.base))
        else:
            self._make_base()
        for keyword, rest in stage.instructions:
            if keyword not in METADATA:
                getattr(self, f"_{keyword.lower()}")(rest)
        return self

    def _stage(self, name: str) -> Image:
        if name not in self.built:
            self.built[name] = Image(self.folder, self.stages, name, built=self.built)._build()
        return self.built[name]

    def _continue(self, base: Image) -> None:
        """Begin with a copy of another stage."""
        self.environment, self.user, self.working = dict(base.environment), base.user, base.working
        self.root.parent.mkdir()
        for source, target in ((base.root, self.root), (base.upper, self.upper)):
            subprocess.run([*AS_ROOT, "cp", "-a", source, target], check=True)
        Path(f"{self.upper}.work").mkdir()

    def _make_base(self) -> None:
        for name in ("usr", "etc", "dev", "proc", "tmp", "opt", "var/cache"):
            (self.root / name).mkdir(parents=True)
        (self.root / "tmp").chmod(0o1777)
        for name in ("bin", "sbin", "lib", "lib64"):
            (self.root / name).symlink_to(f"usr/{name}")
        (self.upper / "bin").mkdir(parents=True)
        Path(f"{self.upper}.work").mkdir()
        (self.upper / "bin" / "python").symlink_to(f"python3.{sys.version_info.minor}")
        copied = [path for name in FROM_ETC if (path := Path("/etc") / name).exists()]
        subprocess.run([*AS_ROOT, "cp", "-aL", *copied, self.root / "etc"], check=True)
        (self.root / "etc" / "ld.so.conf").write_text("/usr/local/lib\n", encoding="utf-8")
        self.run("ldconfig")

    # ------------------------------------------------------------------ instructions

    def _arg(self, rest: str) -> None:
        name, given, default = rest.partition("=")
        if given:
            self.environment[name] = default

    def _env(self, rest: str) -> None:
        for word in shlex.split(rest):
            name, _, text = word.partition("=")
            self.environment[name] = Template(text).substitute(self.environment)

    def _workdir(self, rest: str) -> None:
        self.working = rest
        (self.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def _user(self, rest: str) -> None:
        self.user = rest

    def _run(self, rest: str) -> None:
        self.run(rest)

    def _copy(self, rest: str) -> None:
        *sources, target = rest.split()
        to = self.root / (target if target.startswith("/") else f"{self.working}/{target}").lstrip("/")
        if sources[0].startswith("--from="):
            self._copy_from(self._stage(sources[0].removeprefix("--from=")), *sources[1:])
            return
        for source in map(ROOT.joinpath, sources):
            if source.is_dir():
                shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                folder = to if target.endswith("/") else to.parent
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, to)

    def _copy_from(self, stage: Image, source: str) -> None:
        """Copy a folder to the same path. As in a layer, times have whole seconds."""
        assert re.fullmatch(r"/[\w/.-]+", source)
        packed, unpacked = self.folder / "layer.tar", source.lstrip("/")
        subprocess.run([*AS_ROOT, "tar", "--format=gnu", "-C", stage.root, "-cf", packed, unpacked], check=True)
        subprocess.run([*AS_ROOT, "tar", "-C", self.root, "-xpf", packed], check=True)
        packed.unlink()


# ---------------------------------------------------------------- tests

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
    """A worker in the read-only root, as the image starts it, in the network of this machine."""

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
