"""`shoal health` asks the worker at the address that it is given, with TLS if the address says so."""

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
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_check, "TIMEOUT_S", 60.0)


def test_a_worker_is_alive_before_it_is_ready() -> None:
    with worker() as port:
        assert run_command("health", "--http", f"127.0.0.1:{port}").returncode == 0
        done = run_command("health", "--http", f"127.0.0.1:{port}", "--ready")
        assert (done.returncode, done.stderr) == (1, b"shoal health: not ready: broker not reached\n")


@pytest.mark.parametrize("host", ["0.0.0.0", "", "127.0.0.1", "localhost", "http://127.0.0.1"])  # noqa: S104
def test_the_address_of_the_variable_is_asked(host: str) -> None:
    with worker() as port:
        assert run_command("health", environment={"SHOAL_HTTP": f"{host}:{port}"}).returncode == 0
        done = run_command("health", "--http", f"{host}:{port}", environment={"SHOAL_HTTP": "127.0.0.1:1"})
        assert done.returncode == 0, "an option counts before the variable"


def test_tls_is_spoken_where_the_address_says_so(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path / "authority").issue("worker.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with worker(context) as port:
        assert run_command("health", "--http", f"https://127.0.0.1:{port}").returncode == 0
        done = run_command("health", "--http", f"https://127.0.0.1:{port}", "--ready")
        assert (done.returncode, done.stderr) == (1, b"shoal health: not ready: broker not reached\n")
        done = run_command("health", "--http", f"127.0.0.1:{port}")
        assert done.returncode == 1
        assert done.stderr.endswith(b"does not answer: it may speak TLS; give --http https://HOST:PORT\n")
    with worker() as port:
        done = run_command("health", "--http", f"https://127.0.0.1:{port}")
        assert done.returncode == 1
        assert done.stderr.endswith(b"does not answer: it does not speak TLS; leave out https://\n")


NO_ADDRESS = "it is no HOST:PORT, such as 127.0.0.1:9464 or https://127.0.0.1:9464"


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:1", "no process listens there; give --http the address that `shoal run` has"),
        *(
            (address, NO_ADDRESS)
            for address in ("nonsense", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:99999", "ftp://127.0.0.1:9464")
        ),
        ("127.0.0.1:1/x", NO_ADDRESS),
    ],
)
def test_what_does_not_answer_or_is_no_address_is_not_alive(address: str, reason: str) -> None:
    done = run_command("health", "--http", address)
    assert (done.returncode, done.stderr.decode()) == (1, f"shoal health: {address} does not answer: {reason}\n")


def test_the_console_script_answers_without_loading_the_package() -> None:
    program = (
        "import sys; sys.argv = ['shoal', 'health', '--http', '127.0.0.1:1']; from shoal_command import main; "
        "assert main() == 1; print(sorted(name for name in sys.modules if name.partition('.')[0] in "
        "{'shoal', 'numpy', 'numba', 'aiohttp', 'pydantic', 'structlog'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "['shoal', 'shoal.health_check']\n"
