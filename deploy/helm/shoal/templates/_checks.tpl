{{/*
Fails with every value that cannot work: its name, and what to do. The schema refuses values of the wrong kind, and says
which kind it wants. What has a remedy is checked here instead, because a schema has no messages.
*/}}
{{- define "shoal.check" -}}
{{- $faults := list -}}
{{- range list "Image" "Names" "Workers" "Policy" "Secrets" "Http" "Variables" -}}
{{- $faults = append $faults (include (printf "shoal.faultsOf%s" .) $) -}}
{{- end -}}
{{- $found := join "\n" $faults | splitList "\n" | compact -}}
{{- if $found -}}
{{- fail (printf "\n- %s\n" (join "\n- " $found)) -}}
{{- end -}}
{{- end -}}

{{/* One fault a line. */}}
{{- define "shoal.faultsOfImage" -}}
{{- with .Values.image -}}
{{- if not .repository }}
image.repository: missing; give where the image was published, such as registry.example/shoal
{{- else if regexMatch "://|[@ ]|:[^/]*$|/.*[A-Z]" .repository }}
image.repository: is no name of an image; give it in small letters, without https:// and without tag or digest, such as registry.example/shoal
{{- end }}
{{- if or (kindIs "float64" .tag) (kindIs "int64" .tag) (kindIs "int" .tag) }}
image.tag: is a number, which loses zeros; quote it in the file of values, or give it by --set-string
{{- else if and .tag (eq .tag "latest") }}
image.tag: latest is another image after each release, and all workers of a group must run one version; give a version, such as 0.3.0, or image.digest
{{- else if and .tag (not (regexMatch "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$" .tag)) }}
image.tag: is no tag of an image; give the version alone, such as 0.3.0
{{- else if not (or .tag .digest) }}
image.tag: missing; give a version, such as 0.3.0, or image.digest
{{- end }}
{{- if and .digest (not (regexMatch "^sha256:[0-9a-f]{64}$" .digest)) }}
image.digest: is no digest; give sha256: and 64 hexadecimal digits, as the registry prints them after a push
{{- end }}
{{- end -}}
{{- end -}}

{{- define "shoal.faultsOfNames" -}}
{{- $name := include "shoal.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]{0,48}[a-z0-9])?$" $name) }}
fullnameOverride: {{ ternary "is" "missing, and the release makes" (not (not .Values.fullnameOverride)) }} {{ $name }}, which no Service may be called; give at most 50 small letters, digits and hyphens, with a letter first, such as visits-shoal
{{- end }}
{{- $own := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" -}}
{{- $ofObjects := concat $own (list "app.kubernetes.io/managed-by" "helm.sh/chart") -}}
{{- $taken := dict "podLabels" (list .Values.podLabels $own) "podAnnotations" (list .Values.podAnnotations (list "checksum/policy")) -}}
{{- $_ := set $taken "podMonitor.labels" (list .Values.podMonitor.labels $ofObjects) -}}
{{- $_ := set $taken "prometheusRule.labels" (list .Values.prometheusRule.labels $ofObjects) -}}
{{- range $value, $pair := $taken }}
{{- range $key, $_ := first $pair }}
{{- if has $key (last $pair) }}
{{ $value }}: {{ $key }} is set by the chart; give another name
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "shoal.faultsOfWorkers" -}}
{{- $partitions := .Values.partitions | int -}}
{{- if lt $partitions 1 }}
partitions: missing; give the number of partitions of all inputs together, at least 1
{{- end }}
{{- $scaled := .Values.autoscaling -}}
{{- if $scaled.enabled }}
{{- $most := default $partitions $scaled.maxReplicas | int -}}
{{- if and (ge $partitions 1) (gt $most $partitions) }}
autoscaling.maxReplicas: {{ $most }} workers for {{ $partitions }} partitions; at most one worker per partition gets work
{{- end }}
{{- if and (ge $most 1) (gt ($scaled.minReplicas | int) $most) }}
autoscaling.minReplicas: {{ $scaled.minReplicas }} is more than {{ ternary "autoscaling.maxReplicas" "partitions" (not (not $scaled.maxReplicas)) }}, which is {{ $most }}
{{- end }}
{{- if not $scaled.prometheus }}
autoscaling.prometheus: missing; give the address of Prometheus, such as http://prometheus-operated.monitoring.svc:9090
{{- end }}
{{- else if and (ge $partitions 1) (gt (.Values.replicas | int) $partitions) }}
replicas: {{ .Values.replicas }} workers for {{ $partitions }} partitions; at most one worker per partition gets work
{{- end }}
{{- end -}}

{{/* `shoal check` checks the rest of the policy. */}}
{{- define "shoal.faultsOfPolicy" -}}
{{- $policy := fromYaml .Values.policy -}}
{{- if not .Values.policy }}
policy: missing; give it by --set-file policy=policy.yaml
{{- else if or (hasKey $policy "Error") (not (kindIs "map" (default dict $policy.kafka))) }}
policy: is not YAML with a section kafka of settings; give the file itself by --set-file policy=policy.yaml, and see what `shoal check policy.yaml` says
{{- else }}
{{- range $setting, $_ := $policy.kafka }}
{{- if has $setting (include "shoal.secretSettings" . | splitList " ") }}
policy: kafka.{{ $setting }} is a secret, and a ConfigMap is stored as text; remove it from the policy, put it into a Secret, and name that in kafkaSecretFiles.{{ $setting }}_file: {name, key}
{{- end }}
{{- end }}
{{- $kafka := merge (dict) .Values.kafka (default dict $policy.kafka) -}}
{{- $elsewhere := dict -}}
{{- range .Values.extraEnv }}
{{- $_ := set $elsewhere (toString .name) true -}}
{{- end }}
{{- range list "bootstrap_servers" "group" "input" "output" }}
{{- $isTopic := or (eq . "input") (eq . "output") -}}
{{- if not (or (get $kafka .) (hasKey $elsewhere (printf "SHOAL_KAFKA__%s" (upper .))) (and $isTopic $kafka.topics) (and $isTopic (hasKey $elsewhere "SHOAL_KAFKA__TOPICS"))) }}
kafka.{{ . }}: missing; give it in the values or in the policy
{{- end }}
{{- end }}
{{- if or $kafka.topics (hasKey $elsewhere "SHOAL_KAFKA__TOPICS") }}
{{- range list "input" "output" }}
{{- if or (get $kafka .) (hasKey $elsewhere (printf "SHOAL_KAFKA__%s" (upper .))) }}
kafka.{{ . }}: contradicts kafka.topics, which names all inputs and outputs; remove one of the two, from the values or from the policy
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.extraEgress) (kindIs "string" $kafka.bootstrap_servers) }}
{{- range splitList "," $kafka.bootstrap_servers }}
{{- $port := regexFind ":[0-9]+$" (trim .) | trimPrefix ":" -}}
{{- if and $port (not (has $port (toStrings $.Values.networkPolicy.brokerPorts))) }}
networkPolicy.brokerPorts: lacks {{ $port }}, a port of kafka.bootstrap_servers, so no broker would be reached there; list the ports of all brokers as they advertise them
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- $size := len .Values.policy -}}
{{- range $_, $text := .Values.policyFiles -}}
{{- $size = add $size (len $text) -}}
{{- end -}}
{{- if gt ($size | int) 1000000 }}
policyFiles: {{ $size }} bytes with the policy, and a ConfigMap holds 1 MiB; mount large files by extraVolumes and extraVolumeMounts, and name them in the policy by their paths
{{- end }}
{{- if hasKey .Values.policyFiles "policy.yaml" }}
policyFiles: policy.yaml is the name of the policy itself; give another name
{{- end }}
{{- end -}}

{{- define "shoal.secretSettings" -}}
sasl_password sasl_oauth_token ssl_password metadata_key
{{- end -}}

{{- define "shoal.faultsOfSecrets" -}}
{{- range $setting, $_ := .Values.kafka }}
{{- if has $setting (include "shoal.secretSettings" . | splitList " ") }}
kafka.{{ $setting }}: is a secret, and values are stored as text; put it into a Secret, and name that in kafkaSecretFiles.{{ $setting }}_file: {name, key}
{{- else if hasSuffix "file" $setting }}
kafka.{{ $setting }}: is a file; put it into a Secret, and name that in kafkaSecretFiles.{{ $setting }}: {name, key}; or mount another volume by extraVolumes and extraVolumeMounts, and name the file in extraEnv as SHOAL_KAFKA__{{ upper $setting }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "shoal.faultsOfHttp" -}}
{{- $token := .Values.http.tokenSecret -}}
{{- if and $token (not (and $token.name $token.key)) }}
http.tokenSecret: give both the Secret and its key, as {name: SECRET, key: KEY}
{{- end }}
{{- if or (eq .Values.http.host "localhost") (hasPrefix "127." .Values.http.host) (eq .Values.http.host "[::1]") }}
http.host: {{ .Values.http.host }} cannot be reached from outside the pod, so its probes would fail; give 0.0.0.0, or [::] in a cluster of IPv6
{{- end }}
{{- $tls := .Values.podMonitor.tlsConfig -}}
{{- $trusts := or (and $tls.ca $tls.serverName) $tls.insecureSkipVerify -}}
{{- if and .Values.podMonitor.enabled .Values.http.tlsSecret (not $trusts) }}
podMonitor.tlsConfig: missing, so Prometheus trusts no worker and scrapes none; give {ca: {secret: {name: SECRET, key: ca.crt}}, serverName: NAME}, or {insecureSkipVerify: true}
{{- end }}
{{- if not (regexMatch "^[0-9]+(ms|s|m)$" (toString .Values.podMonitor.interval)) }}
podMonitor.interval: give a number with its unit, such as 15s
{{- end }}
{{- end -}}

{{/*
A variable of a pod that the chart sets, too, would replace what keeps workers apart; the API server refuses the same name
twice.
*/}}
{{- define "shoal.faultsOfVariables" -}}
{{- $instead := dict "SHOAL_HTTP" "http.host and http.port" "SHOAL_HTTP_CERTFILE" "http.tlsSecret" "SHOAL_HTTP_KEYFILE" "http.tlsSecret" -}}
{{- range $setting, $_ := include "shoal.settings" . | fromJson -}}
{{- $_ := set $instead (printf "SHOAL_KAFKA__%s" (upper $setting)) (printf "kafka.%s" $setting) -}}
{{- end -}}
{{- range $setting, $_ := .Values.kafkaSecretFiles -}}
{{- $_ := set $instead (printf "SHOAL_KAFKA__%s" (upper $setting)) (printf "kafkaSecretFiles.%s" $setting) -}}
{{- end -}}
{{- if .Values.http.tokenSecret -}}
{{- $_ := set $instead "SHOAL_HTTP_TOKEN_FILE" "http.tokenSecret" -}}
{{- end -}}
{{- $seen := dict -}}
{{- range .Values.extraEnv }}
{{- $name := toString .name -}}
{{- if eq $name "SHOAL_KAFKA__INSTANCE_ID" }}
extraEnv: {{ $name }} must differ for each worker, and the chart sets it to the name of the pod; remove it
{{- else if hasPrefix "SHOAL_HTTP" $name | and (hasKey $instead $name) }}
extraEnv: {{ $name }} would change the HTTP port without its probes; give {{ get $instead $name }} instead
{{- else if hasKey $instead $name }}
extraEnv: {{ $name }} is set by the chart, from {{ get $instead $name }}; change that instead
{{- else if hasKey $seen $name }}
extraEnv: {{ $name }} is there twice; remove one of the two
{{- else if and .value (regexMatch "^SHOAL_.*(PASSWORD|METADATA_KEY|HTTP_TOKEN|OAUTH_TOKEN)$" $name) }}
extraEnv: {{ $name }} is a secret, and values are stored as text; put it into a Secret, and name that in kafkaSecretFiles or http.tokenSecret, or by valueFrom
{{- end }}
{{- $_ := set $seen $name true -}}
{{- end }}
{{- end -}}
