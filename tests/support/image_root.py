"""Builds the stages of the Dockerfile in folders and runs the service in them, without a container engine.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

ROOT = Path(__file__).resolve().parents[2]
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
class Stage:
    """A stage of the Dockerfile: its instructions, and what they set."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def last(self, keyword: str) -> str:
        """Return the argument of the last instruction of this kind."""
        return [rest for word, rest in self.instructions if word == keyword][-1]


def parse(text: str) -> dict[str, Stage]:
    """Return the stages of a Dockerfile by name; the last one, which has no name, under an empty text."""
    stages: dict[str, Stage] = {}
    arguments: dict[str, str] = {}
    name = ""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    for line in filter(str.strip, lines.splitlines()):
        keyword, _, rest = line.partition(" ")
        words = rest.split()
        if keyword == "FROM":
            name = words[2] if len(words) > 1 else ""
            stages[name] = Stage(name, Template(words[0]).substitute(arguments))
        elif keyword == "ARG" and not stages:
            arguments[rest.partition("=")[0]] = rest.partition("=")[2]
        else:
            stages[name].instructions.append((keyword, rest.strip()))
    return stages


@dataclass
class Image:
    """One stage as folders, with the variables, user and working folder that its instructions have set."""

    folder: Path
    stages: Mapping[str, Stage]
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
        """Return the command that runs a process in this root, as process 1 of its own, as the user of the stage.

        With a read-only root, only the folder of temporary files can be written to.
        """
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
