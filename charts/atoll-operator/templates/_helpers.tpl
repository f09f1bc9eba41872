{{- define "atoll.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "atoll.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "atoll.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "atoll.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "atoll.selectorLabels" -}}
app.kubernetes.io/name: {{ include "atoll.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* The labels of an object: those of the chart, which selectors and Helm need, win over all from values: (dict "root" . "more" (dict)) */}}
{{- define "atoll.labels" -}}
{{- merge (include "atoll.chartLabels" .root | fromYaml) (.more | default dict) (.root.Values.labels | default dict) | toYaml -}}
{{- end -}}

{{- define "atoll.chartLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "atoll.selectorLabels" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* metadata of an object of the release: {{ include "atoll.metadata" (dict "root" . "name" "x") }} */}}
{{- define "atoll.metadata" -}}
name: {{ .name | quote }}
{{- if not .cluster }}
namespace: {{ .root.Release.Namespace | quote }}
{{- end }}
labels:
  {{- include "atoll.labels" (dict "root" .root "more" .labels) | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) (.root.Values.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "atoll.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "atoll.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The image as a container has it. */}}
{{- define "atoll.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "atoll.pullSecrets" -}}
{{- range concat (.Values.global.imagePullSecrets | default list) (.Values.imagePullSecrets | default list) }}
- name: {{ if kindIs "string" . }}{{ . | quote }}{{ else }}{{ .name | quote }}{{ end }}
{{- end }}
{{- end -}}

{{/* The name of a Service has 63 characters at most. */}}
{{- define "atoll.metricsSecret" -}}
{{ include "atoll.fullname" . | trunc 55 | trimSuffix "-" }}-metrics
{{- end -}}

{{/* A number or a percentage. Helm reads numbers as floats, which print large ones with an exponent. */}}
{{- define "atoll.count" -}}
{{- if kindIs "string" . }}{{ . | quote }}{{ else }}{{ int64 . }}{{ end -}}
{{- end -}}
