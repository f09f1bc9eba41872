{{- define "syncagent.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "syncagent.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "syncagent.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "syncagent.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "syncagent.selectorLabels" -}}
app.kubernetes.io/name: {{ include "syncagent.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* The labels of an object: those of the chart, which selectors and Helm need, win over all from values: (dict "root" . "more" (dict)) */}}
{{- define "syncagent.labels" -}}
{{- merge (include "syncagent.chartLabels" .root | fromYaml) (.more | default dict) (.root.Values.labels | default dict) | toYaml -}}
{{- end -}}

{{- define "syncagent.chartLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "syncagent.selectorLabels" . }}
app.kubernetes.io/component: sync-agent
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* metadata of an object of the release: {{ include "syncagent.metadata" (dict "root" . "name" "x") }} */}}
{{- define "syncagent.metadata" -}}
name: {{ .name | quote }}
{{- if not .cluster }}
namespace: {{ .root.Release.Namespace | quote }}
{{- end }}
labels:
  {{- include "syncagent.labels" (dict "root" .root "more" .labels) | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) (.root.Values.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "syncagent.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "syncagent.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The image as a container has it. */}}
{{- define "syncagent.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "syncagent.pullSecrets" -}}
{{- range concat (.Values.global.imagePullSecrets | default list) (.Values.imagePullSecrets | default list) }}
- name: {{ if kindIs "string" . }}{{ . | quote }}{{ else }}{{ .name | quote }}{{ end }}
{{- end }}
{{- end -}}
