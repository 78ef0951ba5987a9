{{/* Name of all objects. A StatefulSet's is also part of a label, with a hash of eleven characters behind it. */}}
{{- define "shoal.fullname" -}}
{{- if contains "shoal" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-shoal" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "shoal.selector" -}}
app.kubernetes.io/name: shoal
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Workers without the pod that drains. */}}
{{- define "shoal.workers" -}}
{{ include "shoal.selector" . }}
app.kubernetes.io/component: worker
{{- end -}}

{{- define "shoal.labels" -}}
{{ include "shoal.workers" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "shoal.image" -}}
{{- $repository := required "image.repository is missing: where the image was published" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (required "image.tag or image.digest is missing" .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The policy, checked: it is YAML. `shoal check` checks the rest. */}}
{{- define "shoal.policy" -}}
{{- $text := required "policy is missing: --set-file policy=policy.yaml" .Values.policy -}}
{{- $parsed := fromYaml $text -}}
{{- if hasKey $parsed "Error" -}}
{{- fail "policy is not YAML" -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{/* The consumer group: from `kafka`, else from the policy. */}}
{{- define "shoal.group" -}}
{{- $policy := fromYaml (include "shoal.policy" .) -}}
{{- $section := default dict $policy.kafka -}}
{{- required "kafka.group is missing, in the values or in the policy" (default $section.group .Values.kafka.group) -}}
{{- end -}}

{{/* Partitions of all inputs, checked against the number of workers. */}}
{{- define "shoal.partitions" -}}
{{- $partitions := required "partitions is missing: the partitions of all inputs together" .Values.partitions | int -}}
{{- $most := ternary (default $partitions .Values.autoscaling.maxReplicas) .Values.replicas .Values.autoscaling.enabled | int -}}
{{- if gt $most $partitions -}}
{{- fail (printf "%d workers for %d partitions: a worker more than partitions gets none" $most $partitions) -}}
{{- end -}}
{{- $partitions -}}
{{- end -}}
