#!/bin/bash
# Create the demo's topics; those that exist are left as they are. BOOTSTRAP names the cluster.
set -euo pipefail

create() {
    /opt/kafka/bin/kafka-topics.sh --bootstrap-server "$BOOTSTRAP" --create --if-not-exists \
        --partitions 4 --replication-factor 1 --topic "$@"
}

# The input and the evidence show persons: they live a day. What is anonymous may stay.
create wages --config retention.ms=86400000
create wages.evidence --config retention.ms=86400000
create wages.quarantine --config retention.ms=86400000
create wages.anonymous
create wages.clusters
