{{/* Name of all objects. A chart that has an alias in another chart is named by it. */}}
{{- define "shoal.fullname" -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) -}}
{{- default (include "shoal.cut" $name) .Values.fullnameOverride -}}
{{- end -}}

{{/*
The name of a StatefulSet is also part of a label, with a hash of eleven characters behind it, so a long name is cut. A
hash of the whole name keeps cut names apart.
*/}}
{{- define "shoal.cut" -}}
{{- if gt (len .) 50 -}}
{{- printf "%s-%s" (trunc 41 . | trimSuffix "-") (sha256sum . | trunc 8) -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{- define "shoal.maintenance" -}}
{{- include "shoal.cut" (printf "%s-maintenance" (include "shoal.fullname" .)) -}}
{{- end -}}

{{- define "shoal.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Workers without the pods of Jobs. */}}
{{- define "shoal.workers" -}}
{{ include "shoal.selector" . }}
app.kubernetes.io/component: worker
{{- end -}}

{{/* Of every object, so the values are checked before anything else is rendered. */}}
{{- define "shoal.labels" -}}
{{- include "shoal.labelsOf" (dict "root" . "component" "worker") -}}
{{- end -}}

{{- define "shoal.labelsOf" -}}
{{- include "shoal.check" .root -}}
{{ include "shoal.selector" .root }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | quote }}
{{- end -}}

{{- define "shoal.image" -}}
{{- .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag }}{{ end -}}
{{- end -}}

{{/* Section `kafka` of the policy as JSON, empty if it is none. */}}
{{- define "shoal.policyOfKafka" -}}
{{- $policy := fromYaml .Values.policy -}}
{{- $kafka := default dict $policy.kafka -}}
{{- ternary $kafka dict (kindIs "map" $kafka) | toJson -}}
{{- end -}}

{{/*
Settings of Kafka that become variables of a pod, as JSON. A pod that is back within `session_timeout_ms` keeps its
partitions: without a choice of the user the time is long enough for a rolling update.
*/}}
{{- define "shoal.settings" -}}
{{- $settings := deepCopy .Values.kafka -}}
{{- $chosen := or (hasKey $settings "session_timeout_ms") (hasKey (include "shoal.policyOfKafka" . | fromJson) "session_timeout_ms") -}}
{{- range .Values.extraEnv -}}
{{- $chosen = or $chosen (eq (toString .name) "SHOAL_KAFKA__SESSION_TIMEOUT_MS") -}}
{{- end -}}
{{- if not $chosen -}}
{{- $_ := set $settings "session_timeout_ms" 45000 -}}
{{- end -}}
{{- $settings | toJson -}}
{{- end -}}
