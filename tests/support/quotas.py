"""Client quotas of a broker, set by Kafka's own tool."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

from support.kafka_broker import load_local


def limit_producers(bootstrap: str, client_ids: Iterable[str], bytes_per_s: int | None) -> None:
    """Limit what each of these clients may produce (bytes a second); None removes the limit."""
    local = load_local()
    change = ["--delete-config", "producer_byte_rate"]
    if bytes_per_s is not None:
        change = ["--add-config", f"producer_byte_rate={bytes_per_s}"]
    for client_id in client_ids:
        subprocess.run(
            [
                *(local.find_java(), "-XX:TieredStopAtLevel=1", "-cp", f"{local.fetch_libraries()}/*"),
                "kafka.admin.ConfigCommand",
                *("--bootstrap-server", bootstrap, "--alter", "--entity-type", "clients", "--entity-name", client_id),
                *change,
            ],
            capture_output=True,
            timeout=120,
            check=True,
        )
