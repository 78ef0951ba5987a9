"""`shoal health` asks the worker of this machine, at the address and with the protocol that the worker uses."""

from __future__ import annotations

import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from shoal import health_check
from support.certificates import Authority
from support.commands import run_command

pytestmark = pytest.mark.unit

ANSWERS = {"/livez": (200, b"alive\n"), "/readyz": (503, b"not ready: broker not reached\n")}


class Probes(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, text = ANSWERS.get(self.path, (404, b""))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def worker(context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Answer the probes of a worker that is alive and not ready; yield the port."""
    with HTTPServer(("127.0.0.1", 0), Probes) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def process_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that takes the place of the arguments of process 1, which here is no worker."""
    path = tmp_path / "cmdline"
    path.write_bytes(b"/sbin/init\0")
    monkeypatch.setattr(health_check, "PROCESS_1", path)
    return path


def service(*options: str) -> bytes:
    return "\0".join(["/opt/shoal/bin/python", "/opt/shoal/bin/shoal", "run", "p.yaml", *options, ""]).encode()


def test_a_worker_is_alive_before_it_is_ready() -> None:
    with worker() as port:
        assert run_command("health", "--http", f"127.0.0.1:{port}").returncode == 0
        done = run_command("health", "--http", f"127.0.0.1:{port}", "--ready")
        assert (done.returncode, done.stderr) == (1, b"shoal health: not ready: broker not reached\n")


@pytest.mark.parametrize("host", ["0.0.0.0", "", "127.0.0.1", "localhost"])  # noqa: S104
def test_an_address_on_all_interfaces_is_asked_on_loopback(host: str) -> None:
    with worker() as port:
        assert run_command("health", environment={"SHOAL_HTTP": f"{host}:{port}"}).returncode == 0


@pytest.mark.parametrize("form", ["--http {}", "--http={}", "--http 127.0.0.1:1 --http {}"])
def test_the_address_of_the_worker_that_is_process_1_is_asked(form: str, process_1: Path) -> None:
    with worker() as port:
        process_1.write_bytes(service(*form.format(f"0.0.0.0:{port}").split()))
        assert run_command("health", environment={"SHOAL_HTTP": "127.0.0.1:1"}).returncode == 0


def test_options_of_another_process_1_are_not_read(process_1: Path) -> None:
    process_1.write_bytes(b"/usr/bin/other\0run\0--http\x00127.0.0.1:1\0")
    with worker() as port:
        assert run_command("health", environment={"SHOAL_HTTP": f"127.0.0.1:{port}"}).returncode == 0
        process_1.unlink()
        assert run_command("health", environment={"SHOAL_HTTP": f"127.0.0.1:{port}"}).returncode == 0


def test_a_worker_with_a_certificate_is_asked_by_tls(tmp_path: Path, process_1: Path) -> None:
    certificate, key = Authority(tmp_path / "authority").issue("worker.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with worker(context) as port:
        address = {"SHOAL_HTTP": f"127.0.0.1:{port}"}
        assert run_command("health", environment=address | {"SHOAL_HTTP_CERTFILE": str(certificate)}).returncode == 0
        process_1.write_bytes(service("--http-certfile", str(certificate)))
        assert run_command("health", environment=address).returncode == 0


def test_a_worker_with_a_certificate_is_found_out_where_no_setting_says_so(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path / "authority").issue("worker.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with worker(context) as port:
        assert run_command("health", "--http", f"127.0.0.1:{port}").returncode == 0
        done = run_command("health", "--http", f"127.0.0.1:{port}", "--ready")
        assert (done.returncode, done.stderr) == (1, b"shoal health: not ready: broker not reached\n")


def test_a_worker_without_a_certificate_is_found_out_where_a_setting_names_one() -> None:
    with worker() as port:
        named = {"SHOAL_HTTP": f"127.0.0.1:{port}", "SHOAL_HTTP_CERTFILE": "/etc/shoal/tls.crt"}
        assert run_command("health", environment=named).returncode == 0


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:1", "no process listens there; give --http the address that `shoal run` has"),
        ("nonsense", "it is no HOST:PORT, such as 127.0.0.1:9464"),
        ("127.0.0.1:", "it is no HOST:PORT, such as 127.0.0.1:9464"),
        ("127.0.0.1:99999", "it is no HOST:PORT, such as 127.0.0.1:9464"),
        ("https://127.0.0.1:9464", "it is no HOST:PORT, such as 127.0.0.1:9464"),
    ],
)
def test_no_answer_is_not_alive(address: str, reason: str) -> None:
    done = run_command("health", "--http", address)
    assert done.returncode == 1
    assert done.stderr.decode() == f"shoal health: {address} does not answer: {reason}\n"
    assert b"Traceback" not in done.stderr


def test_the_console_script_answers_without_loading_the_package() -> None:
    program = (
        "import sys; sys.argv = ['shoal', 'health', '--http', '127.0.0.1:1']; from shoal_command import main; "
        "assert main() == 1; print(sorted(name for name in sys.modules if name.partition('.')[0] in "
        "{'shoal', 'numpy', 'numba', 'aiohttp', 'pydantic', 'structlog'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "['shoal', 'shoal.health_check']\n"
