#!/usr/bin/env bash
# Three brokers with TLS, SCRAM and ACLs, two workers, Prometheus, and one alert that fires and is resolved.
# Run it whole, or block by block, in the root folder of the repository. docs/operate.md says what it needs.
set -euo pipefail

make install
python3 deploy/kafka/secured.py up                       # three brokers, a certificate authority, the user shoal
set -a; . build/kafka/secured/client.env; set +a         # addresses, certificate and password for this shell
kafka() { tool=$1; shift; python3 deploy/kafka/tool.py "$tool" --bootstrap-server "$SHOAL_KAFKA__BOOTSTRAP_SERVERS" \
  --command-config build/kafka/secured/admin.properties "$@"; }

# Policy and topics
cp docs/quickstart/policy.yaml build/visits.yaml
cat >> build/visits.yaml <<'EOF'
kafka: {input: visits, output: visits.anonymous, group: shoal-visits, quarantine: visits.quarantine}
EOF
for topic in visits visits.anonymous visits.quarantine; do
  kafka kafka-topics --create --topic "$topic" --partitions 4 --replication-factor 3
done

# Permissions: the least that a worker needs
grant() { kafka kafka-acls --add --allow-principal User:shoal "$@"; }
grant --operation Read --group shoal-visits
grant --operation Read --topic visits
grant --operation Read --operation Write --topic visits.anonymous
grant --operation Write --topic visits.quarantine
grant --operation Write --operation Describe --transactional-id shoal-visits-visits- --resource-pattern-type prefixed

# Two workers. The first command compiles their kernels, in about 30 seconds of processor time.
.venv/bin/shoal warm build/visits.yaml
for n in 1 2; do
  SHOAL_KAFKA__INSTANCE_ID=worker-$n .venv/bin/shoal run build/visits.yaml --from earliest \
    --http 127.0.0.1:946$n --log json 2> build/worker-$n.log &
  echo $! > build/worker-$n.pid
done
until curl -sf 127.0.0.1:9461/readyz && curl -sf 127.0.0.1:9462/readyz; do sleep 2; done

# Records in, clusters out. The last records wait for ten later ones of their partition: `held`.
for copy in $(seq 10); do                                 # ten times the example, each time with other persons
  tail -n +2 docs/quickstart/visits.csv | awk -F, -v copy="$copy" '{id = $1 "-" copy
    printf "%s\t{\"patient\":\"%s\",\"age\":%s,\"income\":%s,\"diagnosis\":\"%s\"}\n", id, id, $2, $3, $4}'
done | kafka kafka-console-producer --topic visits --reader-property parse.key=true
kafka kafka-console-consumer --topic visits.anonymous --from-beginning --isolation-level read_committed \
  --timeout-ms 10000
.venv/bin/shoal progress build/visits.yaml

# Prometheus and an alert. `make tools` unpacks Debian's Prometheus and needs apt; your own installation works as well.
make tools ONLY=prometheus
cat > build/prometheus.yml <<EOF
global: {scrape_interval: 5s, evaluation_interval: 5s}
rule_files: [$PWD/deploy/prometheus/rules.yml]
scrape_configs:
  - job_name: shoal
    static_configs: [{targets: ["127.0.0.1:9461", "127.0.0.1:9462"]}]
EOF
build/tools/bin/prometheus --config.file build/prometheus.yml --storage.tsdb.path build/prometheus \
  --web.listen-address 127.0.0.1:9090 2> build/prometheus.log &
echo $! > build/prometheus.pid
alerts() { curl -s 127.0.0.1:9090/api/v1/alerts; echo; }
sleep 30; alerts                                          # no alert
kill -9 "$(cat build/worker-2.pid)"                       # a worker is killed
sleep 150; alerts                                         # ShoalDown, "state":"firing"
SHOAL_KAFKA__INSTANCE_ID=worker-2 .venv/bin/shoal run build/visits.yaml --from earliest \
  --http 127.0.0.1:9462 --log json 2>> build/worker-2.log &
echo $! > build/worker-2.pid
sleep 30; alerts                                          # resolved: no alert

# Stop everything
kill "$(cat build/worker-1.pid)" "$(cat build/worker-2.pid)" "$(cat build/prometheus.pid)"
python3 deploy/kafka/secured.py down
