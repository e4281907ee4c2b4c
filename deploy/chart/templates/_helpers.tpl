{{- /* What several templates say alike. */}}

{{- define "csi-node-sidecar.fullname" -}}
{{- .Values.fullnameOverride | default (printf "%s-%s" .Release.Name .Values.nameOverride | trimSuffix "-") -}}
{{- end }}

{{- define "csi-node-sidecar.labels" -}}
{{- $labels := dict "helm.sh/chart" (printf "%s-%s" .Chart.Name (replace "+" "_" .Chart.Version)) "app.kubernetes.io/instance" .Release.Name -}}
{{- $labels = merge $labels (dict "app.kubernetes.io/version" .Chart.AppVersion "app.kubernetes.io/managed-by" .Release.Service) -}}
{{- toYaml (merge $labels .Values.commonLabels) -}}
{{- end }}

{{- /* By which an operator's Prometheus finds the PodMonitor and the alerts. */}}
{{- define "csi-node-sidecar.monitoring" -}}
{{- toYaml (merge dict .Values.monitoring.labels (include "csi-node-sidecar.labels" . | fromYaml)) -}}
{{- end }}

{{- define "csi-node-sidecar.strategy" -}}
updateStrategy:
  {{- toYaml .Values.daemonSet.updateStrategy | nindent 2 }}
{{- end }}

{{- /* Of the pods of either DaemonSet. */}}
{{- define "csi-node-sidecar.pod" -}}
priorityClassName: {{ .Values.daemonSet.priorityClassName | quote }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{ toYaml . }}
{{- end }}
{{- with .Values.daemonSet.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.daemonSet.tolerations }}
tolerations:
{{ toYaml . }}
{{- end }}
{{- with .Values.daemonSet.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.daemonSet.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Of the sidecar's container in either. */}}
{{- define "csi-node-sidecar.container" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default (printf "v%s" .Chart.AppVersion)) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.daemonSet.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.daemonSet.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
