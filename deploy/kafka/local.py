"""A local Apache Kafka on free ports, for tests, the demo and trials: one broker, or a cluster of several.

``up`` starts a broker in the background and prints ``bootstrap=HOST:PORT``. ``down`` stops it and removes its data.
``status`` prints its address. ``with`` runs a command while a broker runs. With ``--brokers 3``, ``up`` starts three
brokers, which are the controllers as well; repeated, it starts those again that have ended, with their data.
``up --protocol SASL_SSL --settings FILE --user ...`` adds a listener to each broker and prints its addresses, too.
If SHOAL_KAFKA__BOOTSTRAP_SERVERS is set, no broker is started and that cluster is used.
Standard library only: this runs before any package is installed.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

__all__ = [
    "BUILD",
    "Broker",
    "BrokerFailedError",
    "again",
    "answers",
    "borrowed",
    "cluster",
    "down",
    "fetch_libraries",
    "find_java",
    "homes",
    "listeners",
    "running",
    "up",
]

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "kafka"
INSTALL = "install Java 17 or newer and Maven, on Debian: apt-get install default-jre-headless maven"
READY_S = 120.0
"""Time limit for the start of the broker (s); on an idle machine it takes about five seconds."""
TELL_S = 5.0
"""Time between two lines that say that the broker still starts (s); the first one comes after one second."""
CLUSTER_ID = "c2hvYWwtbG9jYWwta2Fma2"
JVM = (
    *("-Xms128m", "-Xmx448m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto"),
    *("-Djava.net.preferIPv4Stack=true", "-Djava.awt.headless=true"),
)

SMALL = "-Xmx320m"
"""Heap of each broker of a cluster."""
REPLICATED = (
    "default.replication.factor={0}",
    "min.insync.replicas={1}",
    "offsets.topic.replication.factor={0}",
    "transaction.state.log.replication.factor={0}",
    "transaction.state.log.min.isr={1}",
    "share.coordinator.state.topic.replication.factor={0}",
    "share.coordinator.state.topic.min.isr={1}",
    "controlled.shutdown.enable=true",
    # Another broker takes over within seconds.
    "broker.session.timeout.ms=3000",
    "broker.heartbeat.interval.ms=500",
    "replica.lag.time.max.ms=5000",
    "controller.quorum.election.timeout.ms=1000",
    "controller.quorum.fetch.timeout.ms=2000",
)
"""Settings of a broker of a cluster, by the number of replicas and of those that must have a message."""


class BrokerFailedError(Exception):
    """The broker cannot be started; the message names the remedy."""


class Broker(NamedTuple):
    """A broker process.

    ``began`` is the start time of the process, so that another process with a reused id is not taken for it. A broker
    that is ``kept`` runs until ``down``; any other is stopped when the last command that uses it has ended.
    """

    pid: int
    began: str
    bootstrap: str
    kept: bool

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Return the broker that the last start wrote to this file, or None."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def is_alive(self, home: Path) -> bool:
        """Return whether this process still runs."""
        return process_began(self.pid, str(home / "server.properties")) == self.began


def process_began(pid: int, argument: str) -> str | None:
    """Return the start time of a process as the system prints it; None unless it runs with this argument."""
    proc = Path(f"/proc/{pid}")
    if Path("/proc/self/stat").exists():
        try:
            if argument not in proc.joinpath("cmdline").read_text(errors="replace").split("\0"):  # empty: a zombie
                return None
            return proc.joinpath("stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
        except (OSError, IndexError):
            return None
    found = subprocess.run(
        ["ps", "-ww", "-o", "lstart=", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return found.stdout[:24] if argument in found.stdout.split() else None


def running(home: Path) -> Broker | None:
    """Return the broker of this folder if its process is alive."""
    broker = Broker.read(home / "broker.json")
    return broker if broker is not None and broker.is_alive(home) else None


def up(
    home: Path,
    *,
    kept: bool = True,
    protocols: Sequence[str] = (),
    settings: Sequence[str] = (),
    users: Sequence[str] = (),
) -> Broker:
    """Return the running broker of this folder, started if there is none.

    Parameters
    ----------
    home
        Folder of data, log and process id.
    kept
        Whether it runs until `down`; a broker that is already kept remains so.
    protocols
        Further listeners, one of each security protocol, on free ports; server.properties has their addresses.
    settings
        Further lines of server.properties.
    users
        SCRAM credentials, in the form of ``--add-scram`` of Kafka's storage tool.

    Raises
    ------
    BrokerFailedError
        Java or Maven is missing, the jars cannot be downloaded, or the broker does not start.
    """
    with _locked(home):
        broker = running(home)
        if broker is not None:
            _wait_until_ready(broker, home)
            return _noted(broker._replace(kept=broker.kept or kept), home)
        libraries = fetch_libraries()
        for attempt in range(3):
            try:
                return _start(home, libraries, kept, protocols, settings, users)
            except _PortTakenError:
                _say(f"another process took the free port, attempt {attempt + 2}")
        raise BrokerFailedError("another process took the free port three times")


def homes(home: Path) -> list[Path]:
    """Return the folders of the brokers of a cluster, in the order of their ids; none for a single broker."""
    found = [path for path in home.glob("broker-*") if path.is_dir()]
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


def cluster(
    home: Path,
    brokers: int = 3,
    *,
    protocols: Sequence[str] = (),
    settings: Sequence[str] = (),
    users: Sequence[str] = (),
    change: Callable[[Sequence[Path]], None] | None = None,
    version: str = "",
) -> list[Broker]:
    """Return the running brokers of a cluster, each of which is a controller as well.

    If none of them runs, all are started with new data. If some have ended, these are started again with their data.
    A topic has up to three replicas, all but one of which must have a message before it is acknowledged.

    Parameters
    ----------
    home
        Folder of the cluster; each broker has a folder in it: ``broker-1`` and so on.
    brokers
        Number of brokers.
    protocols, settings, users
        As for `up`, for each broker.
    change
        Called with the folders of the brokers after their server.properties were written, before they start.
    version
        Version of Apache Kafka in place of that of pom.xml; `again` may start a broker with another one.

    Raises
    ------
    BrokerFailedError
        As for `up`.
    """
    with _locked(home):
        folders = homes(home)
        if any(running(folder) for folder in folders):
            return _ready(folders, [running(folder) or _launch(folder, SMALL) for folder in folders])
        for folder in folders:
            shutil.rmtree(folder)
        folders = [home / f"broker-{number}" for number in range(1, brokers + 1)]
        for attempt in range(3):
            try:
                return _start_cluster(folders, protocols, settings, users, change, version)
            except _PortTakenError:
                _say(f"another process took a free port, attempt {attempt + 2}")
        raise BrokerFailedError("another process took a free port three times")


def listeners(home: Path) -> dict[str, str]:
    """Return the addresses of the broker of a folder for clients, by security protocol; of two settings the last."""
    lines = (home / "server.properties").read_text(encoding="utf-8").splitlines()
    listed = [line.partition("=")[2] for line in lines if line.startswith("advertised.listeners=")]
    return dict(listener.split("://") for listener in listed[-1].split(","))


def again(home: Path, settings: Sequence[str] = (), version: str | None = None) -> Broker:
    """Start the broker of a folder again with its data; ``settings`` are added to its server.properties.

    ``version`` is that of Apache Kafka from now on, an empty text that of pom.xml. It is not waited for until it is
    ready.
    """
    if version is not None:
        (home / "version").write_text(version, encoding="utf-8")
    if settings:
        with (home / "server.properties").open("a", encoding="utf-8") as file:
            file.writelines(f"{setting}\n" for setting in settings)
    return _launch(home, SMALL if home.name.startswith("broker-") else "")


def down(home: Path) -> bool:
    """Stop the broker or the brokers of this folder and remove their data; return whether there was one."""
    if not home.exists():
        return False
    with _locked(home):
        found = [(broker, folder) for folder in (home, *homes(home)) if (broker := running(folder))]
        # Without a majority of controllers, a broker waits for them in vain before it ends.
        for broker, folder in found:
            _stop(broker, folder, signal.SIGKILL if len(found) > 1 else signal.SIGTERM)
        _clear(home)
    return bool(found)


@contextlib.contextmanager
def borrowed(home: Path) -> Iterator[str]:
    """Yield the address of the broker of this folder; the last command that uses it stops it, unless it is kept."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "users").open("w", encoding="utf-8") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield up(home, kept=False).bootstrap
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)
            with contextlib.suppress(BlockingIOError):  # another command still uses it
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                broker = running(home)
                if broker is not None and not broker.kept:
                    down(home)


class _PortTakenError(BrokerFailedError):
    """Another process has bound the port that was free."""


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Hold the lock of a folder: one command at a time changes it."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def find_java() -> str:
    """Return the path of a Java that can run the broker."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else None
    java = java or shutil.which("java")
    if java is None:
        raise BrokerFailedError(f"no java found: {INSTALL}")
    return java


def fetch_libraries(version: str = "") -> Path:
    """Return the folder with the jars of this pom.xml, or of another version; Maven downloads them if missing."""
    pom = HERE / "pom.xml"
    if version:
        pom = BUILD / f"pom-{version}.xml"
        text = re.sub(
            r"(org\.apache\.kafka</groupId>\s.*\s*<version>)[^<]+", rf"\g<1>{version}", (HERE / "pom.xml").read_text()
        )
        pom.parent.mkdir(parents=True, exist_ok=True)
        pom.write_text(text, encoding="utf-8")
    libraries = BUILD / "libs" / hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    if libraries.is_dir():
        return libraries
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerFailedError(f"no mvn found: {INSTALL}")
    find_java()
    part = libraries.with_name(f"{libraries.name}.{os.getpid()}")
    command = [maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"]
    command = _with_progress_dots("kafka: Maven fetches Apache Kafka, once", command)
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={part}"]
    said = ""
    for again in ([], ["-U"], ["-U"]):
        done = subprocess.run(
            [*command, *options, *again], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode == 0:
            with contextlib.suppress(OSError):  # another command was faster
                part.rename(libraries)
            shutil.rmtree(part, ignore_errors=True)
            return libraries
        said = done.stdout[-2000:]
    shutil.rmtree(part, ignore_errors=True)
    raise BrokerFailedError(f"Maven could not fetch Apache Kafka:\n{said}")


def _with_progress_dots(what: str, command: list[str]) -> list[str]:
    """Return the command with progress dots on standard error and all its output on standard output."""
    return [sys.executable, str(HERE.parent / "waiting.py"), what, *command]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _noted(broker: Broker, home: Path) -> Broker:
    (home / "broker.json").write_text(json.dumps(broker._asdict()), encoding="utf-8")
    return broker


def _start(
    home: Path,
    libraries: Path,
    kept: bool,  # noqa: FBT001 - private
    protocols: Sequence[str],
    settings: Sequence[str],
    users: Sequence[str],
) -> Broker:
    _clear(home)
    ports = _free_ports(2 + len(protocols))
    _configure(home, 1, ports, protocols, settings, [ports[-1]])
    _format(home, libraries, users)
    broker = _launch(home, "", kept=kept)
    try:
        _wait_until_ready(broker, home)
    except BaseException:
        _stop(broker, home, signal.SIGKILL)
        raise
    return broker


def _start_cluster(
    folders: Sequence[Path],
    protocols: Sequence[str],
    settings: Sequence[str],
    users: Sequence[str],
    change: Callable[[Sequence[Path]], None] | None,
    version: str,
) -> list[Broker]:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    _configure_cluster(folders, protocols, settings)
    for folder in folders:
        (folder / "version").write_text(version, encoding="utf-8")
    _format_cluster(folders, fetch_libraries(version), users)
    if change is not None:
        change(folders)
    try:
        return _ready(folders, [_launch(folder, SMALL) for folder in folders])
    except BaseException:
        for folder in folders:
            broker = running(folder)
            if broker is not None:
                _stop(broker, folder, signal.SIGKILL)
        raise


def _configure(
    home: Path,
    node: int,
    ports: Sequence[int],
    protocols: Sequence[str],
    settings: Sequence[str],
    voters: Sequence[int],
) -> None:
    """Write server.properties; the last port is that of the controller, ``voters`` are those of all controllers."""
    names = ["PLAINTEXT", *protocols]
    clients = ",".join(f"{name}://127.0.0.1:{at}" for name, at in zip(names, ports, strict=False))
    home.mkdir(parents=True, exist_ok=True)
    (home / "server.properties").write_text(
        (HERE / "server.properties").read_text(encoding="utf-8")
        + "".join(f"\n{line}" for line in settings)
        + f"\nnode.id={node}"
        + f"\nlisteners={clients},CONTROLLER://127.0.0.1:{ports[-1]}"
        + f"\nadvertised.listeners={clients}"
        + f"\nlistener.security.protocol.map={','.join(f'{name}:{name}' for name in names)},CONTROLLER:PLAINTEXT"
        + f"\ncontroller.quorum.voters={','.join(f'{at}@127.0.0.1:{port}' for at, port in enumerate(voters, 1))}"
        + f"\nlog.dirs={home / 'data'}\n",
        encoding="utf-8",
    )


def _configure_cluster(folders: Sequence[Path], protocols: Sequence[str], settings: Sequence[str]) -> None:
    of_each = 2 + len(protocols)
    ports = _free_ports(of_each * len(folders))
    replicas = min(3, len(folders))
    replicated = [line.format(replicas, max(1, replicas - 1)) for line in REPLICATED]
    for node, folder in enumerate(folders, 1):
        own = ports[(node - 1) * of_each : node * of_each]
        _configure(folder, node, own, protocols, [*replicated, *settings], ports[of_each - 1 :: of_each])


def _format_cluster(folders: Sequence[Path], libraries: Path, users: Sequence[str]) -> None:
    """Format one data folder, and copy it for the other brokers with their ids: a Java process takes a second."""
    _format(folders[0], libraries, users)
    written = (folders[0] / "data" / "meta.properties").read_text(encoding="utf-8")
    for node, folder in enumerate(folders[1:], 2):
        shutil.copytree(folders[0] / "data", folder / "data")
        own = {"node.id": str(node), "directory.id": _kafka_id()}
        lines = [line.partition("=") for line in written.splitlines()]
        text = "".join(f"{name}{equals}{own.get(name, value)}\n" for name, equals, value in lines)
        (folder / "data" / "meta.properties").write_text(text, encoding="utf-8")


def _kafka_id() -> str:
    """Return a random id as Kafka writes it."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _command(libraries: Path, heap: str = "") -> list[str]:
    """Return the start of a command of Kafka; of two settings of the heap the last one counts."""
    options = [*JVM, *filter(None, [heap]), f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"]
    return [find_java(), *options, "-cp", f"{libraries}/*"]


def _launch(home: Path, heap: str, *, kept: bool = True) -> Broker:
    """Start the process of a broker whose folder is configured and formatted."""
    properties = home / "server.properties"
    bootstrap = listeners(home)["PLAINTEXT"]
    version = home / "version"
    libraries = fetch_libraries(version.read_text(encoding="utf-8") if version.exists() else "")
    with (home / "broker.log").open("ab") as log:
        process = subprocess.Popen(
            [*_command(libraries, heap), "kafka.Kafka", str(properties)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home,
            start_new_session=True,
        )
    try:
        broker = _noted(Broker(process.pid, _began(process, str(properties)), bootstrap, kept), home)
    except BaseException:
        process.kill()
        process.wait()
        raise
    process.returncode = 0  # the broker keeps running; this prevents a ResourceWarning
    return broker


def _ready(folders: Sequence[Path], brokers: list[Broker]) -> list[Broker]:
    """Wait until each broker of a cluster knows all of them; return them."""
    for folder, broker in zip(folders, brokers, strict=True):
        _wait_until_ready(broker, folder, len(folders))
    return brokers


def _began(process: subprocess.Popen[bytes], argument: str) -> str:
    """Return the start time of a new process; its arguments become visible shortly after its start."""
    while process.poll() is None:
        began = process_began(process.pid, argument)
        if began is not None:
            return began
        time.sleep(0.001)
    return ""


def _format(home: Path, libraries: Path, users: Sequence[str]) -> None:
    tool = [*_command(libraries), "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID]
    tool += ["-c", str(home / "server.properties"), *(part for user in users for part in ("--add-scram", user))]
    done = subprocess.run(
        _with_progress_dots("kafka: starting a broker", tool),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        hint = INSTALL if "UnsupportedClassVersionError" in done.stdout else done.stdout[-2000:]
        raise BrokerFailedError(f"the storage of Kafka could not be formatted: {hint}")


def _wait_until_ready(broker: Broker, home: Path, brokers: int = 1) -> None:
    """Wait until the broker answers a metadata request with so many brokers and a controller."""
    began = time.monotonic()
    tell_at = began + 1.0
    while not answers(broker.bootstrap, brokers):
        if time.monotonic() > tell_at:
            _say(f"the broker starts: {time.monotonic() - began:.0f} s")
            tell_at = time.monotonic() + TELL_S
        late = time.monotonic() > began + READY_S
        if not broker.is_alive(home) or late:
            log = (home / "broker.log").read_text(encoding="utf-8", errors="replace")
            if not late and "Address already in use" in log:
                raise _PortTakenError("another process took its port")
            what = f"is not ready after {READY_S:.0f} s" if late else "ended"
            raise BrokerFailedError(f"the broker {what}:\n{log[-2000:]}")
        time.sleep(0.05)


def answers(bootstrap: str, brokers: int = 1) -> bool:
    """Return whether the response to a Metadata request (version 1, no topic) has so many brokers and a controller."""
    host, port = bootstrap.split(":")
    request = struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 0)
    try:
        with socket.create_connection((host, int(port)), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            size = struct.unpack(">i", _receive(connection, 4))[0]
            answer = _receive(connection, size)
        (count,) = struct.unpack_from(">i", answer, 4)
        at = 8
        for _ in range(count):  # id, host, port, rack, of which there is none
            (host_length,) = struct.unpack_from(">h", answer, at + 4)
            at += 4 + 2 + host_length + 4 + 2
        return bool(count >= brokers and struct.unpack_from(">i", answer, at)[0] >= 0)
    except (OSError, struct.error):
        return False


def _receive(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = connection.recv(size - len(content))
        if not part:
            raise ConnectionResetError
        content += part
    return content


def _stop(broker: Broker, home: Path, first: signal.Signals = signal.SIGTERM) -> None:
    """End the broker with SIGTERM, then SIGKILL; never end another process that has reused its id."""
    for number, timeout_s in ((first, 10.0), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError):
            if broker.is_alive(home):
                os.kill(broker.pid, number)
        deadline = time.monotonic() + timeout_s
        while broker.is_alive(home) and time.monotonic() < deadline:
            time.sleep(0.02)
        if not broker.is_alive(home):
            return


def _clear(home: Path) -> None:
    for folder in (home / "data", *homes(home)):
        shutil.rmtree(folder, ignore_errors=True)
    for name in ("broker.json", "server.properties", "broker.log"):
        (home / name).unlink(missing_ok=True)


def _say(text: str) -> None:
    print(f"kafka: {text}", file=sys.stderr, flush=True)


def _beside(home: Path, command: list[str]) -> int:
    """Run a command with SHOAL_TEST_BROKER set."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with contextlib.ExitStack() as stack:
        given = os.environ.get("SHOAL_TEST_BROKER") or os.environ.get("SHOAL_KAFKA__BOOTSTRAP_SERVERS")
        bootstrap = given or stack.enter_context(borrowed(home))
        return subprocess.run(command, env={**os.environ, "SHOAL_TEST_BROKER": bootstrap}, check=False).returncode


def _joined(brokers: Sequence[Broker]) -> str:
    return ",".join(broker.bootstrap for broker in brokers)


def _up(home: Path, brokers: int, protocols: Sequence[str], settings: Sequence[str], users: Sequence[str]) -> str:
    """Return the addresses of what runs now; a cluster that runs already is not replaced by a single broker."""
    if running(home) is not None and brokers > 1:
        raise BrokerFailedError("a single broker runs; stop it first: local.py down")
    if brokers > 1 or any(running(folder) for folder in homes(home)):
        return _joined(cluster(home, brokers, protocols=protocols, settings=settings, users=users))
    return up(home, protocols=protocols, settings=settings, users=users).bootstrap


def _secured(home: Path) -> dict[str, str]:
    """Return the addresses of further listeners of what runs now, by security protocol."""
    found: dict[str, list[str]] = {}
    for folder in homes(home) or [home]:
        for name, address in listeners(folder).items() if running(folder) else ():
            if name != "PLAINTEXT":
                found.setdefault(name, []).append(address)
    return {name: ",".join(addresses) for name, addresses in found.items()}


def _status(home: Path) -> str:
    single = running(home)
    return _joined([broker for folder in homes(home) if (broker := running(folder))] if single is None else [single])


def main() -> int:
    """Read the command line and run one command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=BUILD / "run", help="folder of data, log and process id")
    parser.add_argument("--brokers", type=int, default=1, help="number of brokers that `up` starts")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("up", help="start a broker and print its address")
    start.add_argument(
        "--protocol", action="append", default=[], help="further listener: SSL, SASL_SSL, SASL_PLAINTEXT"
    )
    start.add_argument("--settings", type=Path, help="file with further lines of server.properties")
    start.add_argument("--user", action="append", default=[], help="SCRAM-SHA-512=[name=NAME,password=PASSWORD]")
    commands.add_parser("down", help="stop it and remove its data")
    commands.add_parser("status", help="print its address, or exit 1")
    beside = commands.add_parser("with", help="run a command while a broker runs")
    beside.add_argument("run", nargs=argparse.REMAINDER, metavar="COMMAND")
    arguments = parser.parse_args()
    home = arguments.home.resolve()
    given = os.environ.get("SHOAL_KAFKA__BOOTSTRAP_SERVERS")
    try:
        if arguments.command == "with":
            return _beside(home, arguments.run[arguments.run[:1] == ["--"] :])
        if arguments.command == "down":
            _say("stopped" if down(home) else "none was running")
            return 0
        if arguments.command == "status" or given:
            bootstrap = given or _status(home)
        else:
            settings = arguments.settings.read_text(encoding="utf-8").splitlines() if arguments.settings else []
            bootstrap = _up(home, arguments.brokers, arguments.protocol, settings, arguments.user)
    except BrokerFailedError as error:
        _say(str(error))
        return 3
    if not bootstrap:
        _say("not running")
        return 1
    print(f"bootstrap={bootstrap}")
    for name, addresses in _secured(home).items() if not given else ():
        print(f"{name}={addresses}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
