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

{{/* Of every object, so the values are checked before anything else is rendered. */}}
{{- define "shoal.labels" -}}
{{- include "shoal.check" . -}}
{{ include "shoal.workers" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "shoal.image" -}}
{{- .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag }}{{ end -}}
{{- end -}}
