{{- /* Generated from manifests/complete-templates/entry.yaml by `python -m lab.chart`. */ -}}
{{- define "tranche.templateEntry" }}
  # The condition is that of pods (../base/webhook.yaml), here of any template.
  - name: templates.gpu.scheduling
    clientConfig:
      service:
        name: tranche-webhook
        namespace: tranche-system
        path: /mutate
        port: 443
{{- include "tranche.caBundle" . }}
    admissionReviewVersions: [v1, v1beta1]
    sideEffects: None
    failurePolicy: Ignore
    reinvocationPolicy: IfNeeded
    timeoutSeconds: 5
    matchPolicy: Equivalent
    rules:
      - apiGroups: [batch]
        apiVersions: [v1]
        operations: [CREATE]
        resources: [jobs]
        scope: Namespaced
      - apiGroups: [apps]
        apiVersions: [v1]
        operations: [CREATE]
        resources: [deployments]
        scope: Namespaced
      - apiGroups: [jobset.x-k8s.io]
        apiVersions: ["*"]
        operations: [CREATE]
        resources: [jobsets]
        scope: Namespaced
    namespaceSelector:
      matchExpressions:
        - {key: gpu.scheduling/injection, operator: In, values: [enabled]}
        - {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ include "tranche.excludedNamespaces" . }}}
    matchConditions:
      - name: some-pod-asks-for-a-gpu-or-brings-a-claim-or-an-allocation
        expression: >-
          (has(object.spec.template) ? [object.spec.template] :
            object.spec.replicatedJobs.map(j, j.template.spec.template)).exists(t,
          (t.spec.containers + (has(t.spec.initContainers) ? t.spec.initContainers : [])).exists(c,
            has(c.resources) && (
              ['nvidia.com/gpu', 'nvidia.com/gpumem', 'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores',
               'nvidia.com/gputflops'].exists(r,
                (has(c.resources.limits) && r in c.resources.limits) ||
                (has(c.resources.requests) && r in c.resources.requests)) ||
              (has(c.resources.limits) && c.resources.limits.exists(r, r.startsWith('nvidia.com/')))))
          || (has(t.metadata) && has(t.metadata.labels) && 'gpu.scheduling/queue' in t.metadata.labels) ||
          (has(t.metadata) && has(t.metadata.annotations) && t.metadata.annotations.exists(k,
            k in ['gpu.scheduling/claim', 'gpu.scheduling/resreq', 'gpu.scheduling/allocation', 'gpu.scheduling/allocated',
              'gpu.scheduling/leader', 'gpu.scheduling/charged-to', 'gpu.scheduling/resized'] ||
            k.startsWith('hami.io/vgpu-') || k.startsWith('hami.io/bind-') || k.contains('.gpu.scheduling/'))))
{{- end }}
