{{- define "tagmill.labels" -}}
app.kubernetes.io/name: tagmill
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "tagmill.allLabels" -}}
{{ include "tagmill.labels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "tagmill.name" -}}
{{ .root.Release.Name }}-{{ .component }}
{{- end }}

{{- define "tagmill.tag" -}}
{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "tagmill.podSecurity" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "tagmill.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "tagmill.serverEnvironment" -}}
- {name: TAGMILL_LISTEN, value: "0.0.0.0:8080"}
- {name: TAGMILL_PROCESSES, value: {{ .Values.server.processes | quote }}}
- {name: TAGMILL_TRUSTED_PROXIES, value: {{ .Values.server.proxies | quote }}}
- name: TAGMILL_ALLOWED_HOSTS
  value: "{{ .Values.server.host }},{{ .Release.Name }}-server,localhost,127.0.0.1"
{{- if .Values.memcached.enabled }}
- {name: TAGMILL_CACHE_URL, value: "memcached://{{ .Release.Name }}-memcached:11211"}
{{- end }}
{{- if .Values.bodies.enabled }}
- {name: TAGMILL_CACHE_SERVERS, value: "127.0.0.1:11211,dns:{{ .Release.Name }}-bodies:11211"}
{{- end }}
{{- range $name, $value := .Values.server.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
