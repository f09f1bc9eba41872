{{/* An object of the operator: {{ include "installation.object" (dict "root" . "kind" "Shard" "name" "alpha" "defaults" (dict) "spec" (dict)) }} */}}
{{- define "installation.object" -}}
apiVersion: operator.kcp.io/v1alpha1
kind: {{ .kind }}
metadata:
  name: {{ .name | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- merge (include "installation.labels" .root | fromYaml) (.root.Values.labels | default dict) | toYaml | nindent 4 }}
  {{- with .root.Values.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- $defaults := .defaults }}
{{- if and .root.Values.image (not (has .kind (list "Kubeconfig" "BackupStore" "BackupSchedule"))) }}
{{- $defaults = merge $defaults (dict "image" (deepCopy .root.Values.image)) }}
{{- end }}
spec:
  {{- mergeOverwrite $defaults (deepCopy (.spec | default dict)) | toYaml | nindent 2 }}
{{- end -}}

{{/* Labels that win over those of the values: Helm needs them. */}}
{{- define "installation.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The name of the cache server that shards use unless they name another; empty for the one that is embedded in the root shard. */}}
{{- define "installation.cacheServer" -}}
{{- $names := list }}
{{- range $name, $spec := .Values.cacheServers }}
{{- if not (get ($spec | default dict) "parent") }}{{ $names = append $names $name }}{{ end }}
{{- end }}
{{- if eq (len $names) 1 }}{{ first $names }}{{ end }}
{{- end -}}
