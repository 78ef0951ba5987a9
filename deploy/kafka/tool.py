"""Runs a command-line tool of Apache Kafka from the jars that local.py fetches.

``python3 deploy/kafka/tool.py kafka-topics --bootstrap-server localhost:9092 --list`` is what ``kafka-topics.sh`` of a
Kafka installation does. Standard library only.
"""

from __future__ import annotations

import subprocess
import sys

from local import BrokerFailedError, fetch_libraries, find_java

__all__ = ["TOOLS", "main"]

TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
}
"""Name of each tool, and its class."""


def main() -> int:
    """Run the tool that the command line names; return its exit code."""
    name = sys.argv[1].removesuffix(".sh") if len(sys.argv) > 1 else ""
    if name not in TOOLS:
        print(f"usage: tool.py TOOL [ARGUMENT ...]; TOOL is one of {', '.join(TOOLS)}", file=sys.stderr)
        return 2
    try:
        java, jars = find_java(), fetch_libraries()
    except BrokerFailedError as error:
        print(f"kafka: {error}", file=sys.stderr)
        return 1
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=WARN"]
    command = [java, *options, "-cp", f"{jars}/*", TOOLS[name], *sys.argv[2:]]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
