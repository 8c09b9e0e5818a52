{{- /* What charts/gpu-scheduler, which has the same templates, defines differently. */ -}}

{{- define "tranche.namespaceCheck" -}}
{{- if ne .Release.Namespace "tranche-system" -}}
{{- fail (printf "namespace %q: Tranche runs in tranche-system, which its admission policies name; use --namespace tranche-system" .Release.Namespace) -}}
{{- end -}}
{{- end -}}

{{- define "tranche.excludedNamespaces" -}}
{{- append .Values.webhook.excludeNamespaces "tranche-system" | uniq | toJson -}}
{{- end -}}

{{- /* Namespaces that are opted in by name, as JSON. */ -}}
{{- define "tranche.includedNamespaces" -}}
[]
{{- end -}}

{{- define "tranche.schedulerAccount" -}}
tranche-scheduler
{{- end -}}

{{- /* The Secret with a certificate that another issuer signs; empty if the webhook issues its own. */ -}}
{{- define "tranche.certificateSecret" -}}
{{- if .Values.certManager.enabled -}}
tranche-webhook-tls
{{- end -}}
{{- end -}}

{{- /* Written by the webhook or by cert-manager. */ -}}
{{- define "tranche.caBundle" -}}
{{- end -}}
