{{- /* What this chart defines differently from charts/tranche, whose templates it has in templates/tranche. Helm reads a
file in a deeper folder first, so the definitions here take precedence; they must not be empty, because Go's templates
ignore an empty redefinition. */ -}}

{{- define "tranche.namespaceCheck" -}}
{{- if eq .Release.Namespace "tranche-system" -}}
{{- fail "namespace \"tranche-system\" is for the processes and its pods get no GPU; use --namespace gpu-scheduler" -}}
{{- end -}}
{{- if and .Values.webhook.caBundle .Values.certManager.enabled -}}
{{- fail "webhook.caBundle is for a certificate of yours, certManager.enabled for one that cert-manager issues: set one of them" -}}
{{- end -}}
{{- end -}}

{{- define "tranche.includedNamespaces" -}}
{{- .Values.webhook.excludeOwnNamespace | ternary list (list .Release.Namespace) | toJson -}}
{{- end -}}

{{- define "tranche.excludedNamespaces" -}}
{{- $own := .Values.webhook.excludeOwnNamespace | ternary (list .Release.Namespace) list -}}
{{- concat .Values.webhook.excludeNamespaces $own (list "tranche-system") | uniq | toJson -}}
{{- end -}}

{{- define "tranche.schedulerAccount" -}}
{{- .Values.serviceAccountName -}}
{{- end -}}

{{- define "tranche.certificateSecret" -}}
{{- if .Values.webhook.caBundle -}}
gpu-scheduler-webhook-cert
{{- else if .Values.certManager.enabled -}}
tranche-webhook-tls
{{- end -}}
{{- end -}}

{{- define "tranche.caBundle" -}}
{{- with .Values.webhook.caBundle }}
      caBundle: {{ . }}
{{- end -}}
{{- end -}}
