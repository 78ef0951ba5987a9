{{/*
Pod of a worker: `root` is the context of the chart, `arguments` are further ones of `shoal run`. With `isIdle` it has all
that a worker has, and runs nothing.
*/}}
{{- define "shoal.pod" -}}
{{- $arguments := .arguments -}}
{{- $isIdle := .isIdle -}}
{{- with .root -}}
{{- $root := . -}}
{{- $name := include "shoal.fullname" . -}}
serviceAccountName: {{ $name | quote }}
automountServiceAccountToken: false
enableServiceLinks: false # no variables SHOAL_... of services with such a name
terminationGracePeriodSeconds: {{ ternary 1 .Values.terminationGracePeriodSeconds (default false $isIdle) }}
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- if kindIs "invalid" .Values.topologySpreadConstraints }}
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "shoal.workers" $root | nindent 8 }}
  {{- end }}
  {{- else }}
  {{- toYaml .Values.topologySpreadConstraints | nindent 2 }}
  {{- end }}
containers:
  - name: shoal
    image: {{ include "shoal.image" . | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    {{- if $isIdle }}
    command: [sleep, infinity]
    {{- else }}
    args:
      - run
      - /etc/shoal/policy.yaml
      {{- with .Values.from }}
      - --from={{ . }}
      {{- end }}
      - --http={{ .Values.http.host }}:{{ .Values.http.port }}
      - --log=json
      {{- range $arguments }}
      - {{ . }}
      {{- end }}
    {{- end }}
    env:
      - name: SHOAL_KAFKA__INSTANCE_ID # static membership: each pod keeps its partitions over a short restart
        valueFrom: {fieldRef: {fieldPath: metadata.name}}
      {{- range $setting, $value := include "shoal.settings" . | fromJson }}
      - {name: SHOAL_KAFKA__{{ upper $setting }}, value: {{ ternary $value (toJson $value) (kindIs "string" $value) | quote }}}
      {{- end }}
      {{- range $setting, $secret := .Values.kafkaSecretFiles }}
      - {name: SHOAL_KAFKA__{{ upper $setting }}, value: /etc/shoal-secrets/{{ $setting }}}
      {{- end }}
      {{- if .Values.http.tokenSecret }}
      - {name: SHOAL_HTTP_TOKEN_FILE, value: /etc/shoal-http/token}
      {{- end }}
      {{- if .Values.http.tlsSecret }}
      - {name: SHOAL_HTTP_CERTFILE, value: /etc/shoal-http/tls.crt}
      - {name: SHOAL_HTTP_KEYFILE, value: /etc/shoal-http/tls.key}
      {{- end }}
      {{- with .Values.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- if not $isIdle }}
    ports:
      - {name: http, containerPort: {{ .Values.http.port }}, protocol: TCP}
    # /livez answers while the broker is away. /readyz does not.
    startupProbe:
      httpGet: {path: /livez, port: http{{ if .Values.http.tlsSecret }}, scheme: HTTPS{{ end }}}
      periodSeconds: 2
      timeoutSeconds: 5
      failureThreshold: 90
    livenessProbe:
      httpGet: {path: /livez, port: http{{ if .Values.http.tlsSecret }}, scheme: HTTPS{{ end }}}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 6
    readinessProbe:
      httpGet: {path: /readyz, port: http{{ if .Values.http.tlsSecret }}, scheme: HTTPS{{ end }}}
      periodSeconds: 5
      timeoutSeconds: 5
      failureThreshold: 3
    {{- end }}
    resources: {{- toYaml .Values.resources | nindent 6 }}
    securityContext: {{- toYaml .Values.containerSecurityContext | nindent 6 }}
    volumeMounts:
      - {name: policy, mountPath: /etc/shoal, readOnly: true}
      - {name: tmp, mountPath: /tmp}
      - {name: kernels, mountPath: /var/cache/shoal}
      {{- if .Values.kafkaSecretFiles }}
      - {name: secrets, mountPath: /etc/shoal-secrets, readOnly: true}
      {{- end }}
      {{- if or .Values.http.tokenSecret .Values.http.tlsSecret }}
      - {name: http, mountPath: /etc/shoal-http, readOnly: true}
      {{- end }}
      {{- with .Values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  - name: policy
    configMap: {name: {{ printf "%s-policy" $name | quote }}}
  - name: tmp
    emptyDir: {medium: Memory, sizeLimit: 16Mi}
  - name: kernels # those that the image lacks: a container that restarts does not compile them again
    emptyDir: {sizeLimit: 256Mi}
  {{- if .Values.kafkaSecretFiles }}
  - name: secrets
    projected:
      defaultMode: 288 # 0440 in octal: a key file that others may read is refused
      sources:
        {{- range $setting, $secret := .Values.kafkaSecretFiles }}
        - secret: {name: {{ $secret.name | quote }}, items: [{key: {{ $secret.key | quote }}, path: {{ $setting }}}]}
        {{- end }}
  {{- end }}
  {{- if or .Values.http.tokenSecret .Values.http.tlsSecret }}
  - name: http
    projected:
      defaultMode: 288 # 0440 in octal
      sources:
        {{- with .Values.http.tokenSecret }}
        - secret: {name: {{ .name | quote }}, items: [{key: {{ .key | quote }}, path: token}]}
        {{- end }}
        {{- with .Values.http.tlsSecret }}
        - secret: {name: {{ . | quote }}, items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]}
        {{- end }}
  {{- end }}
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
{{- end -}}
