{{- define "stowplan.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "stowplan.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "stowplan.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "stowplan.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "stowplan.operator" -}}
{{- printf "%s-operator" (include "stowplan.fullname" .) -}}
{{- end -}}

{{- define "stowplan.serviceAccount" -}}
{{- default (include "stowplan.operator" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- /* Cluster-wide names carry the release's namespace, so that a name used twice is an error and not a takeover. */ -}}
{{- define "stowplan.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "stowplan.operator" .) -}}
{{- end -}}

{{- /* The agents' role and the admission policy are known to operator and agents by name: a cluster has one release. */ -}}
{{- define "stowplan.onlyRelease" -}}
{{- with lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "stowplan-agent" -}}
{{- $name := dig "metadata" "annotations" "meta.helm.sh/release-name" "" . -}}
{{- $namespace := dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" . -}}
{{- if and $name (or (ne $name $.Release.Name) (ne $namespace $.Release.Namespace)) -}}
{{- fail (printf "release %s in namespace %s serves this cluster already, and one operator serves a cluster; upgrade that release, or uninstall it first (its watchNamespaces say which namespaces are served)" $name $namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "stowplan.selectorLabels" -}}
app.kubernetes.io/name: {{ include "stowplan.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "stowplan.labels" -}}
app.kubernetes.io/name: {{ include "stowplan.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: stowplan
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "stowplan.image" -}}
{{- printf "%s:%s" .image.repository (default .appVersion .image.tag) -}}
{{- end -}}
