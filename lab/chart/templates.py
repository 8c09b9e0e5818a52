"""Which manifests become templates, and where values enter them."""

from __future__ import annotations

from lab.chart.template import Edit, Template

CRDS = "and .Values.crds.enabled .Values.crds.install"
CERT_MANAGER = ".Values.certManager.enabled"
# Somebody else issues the webhook's certificate, into this Secret.
MOUNTED = 'include "tranche.certificateSecret" .'
HAMI = ".Values.hamiNodes.enabled"
EXTENDER = ".Values.extender.enabled"
HAND_OVER = ".Values.resourceClaims.enabled"
KUBE_SCHEDULER = f"or {EXTENDER} {HAND_OVER}"
PREEMPTION = 'dig "preemption" "enabled" true (.Values.config.scheduler | default dict)'
NRI = ".Values.delivery.nvidiaNri"
OWN_NRI = ".Values.delivery.nri"
DEVICE_PLUGIN = ".Values.delivery.devicePlugin"
DRA = ".Values.dra.enabled"
BY_AGENT = f"(or {OWN_NRI} {DEVICE_PLUGIN})"
# The sockets for plugins belong to root.
AS_ROOT = f"(or {OWN_NRI} {DEVICE_PLUGIN} {DRA})"
BINDINGS = 'ne .Values.bindings.mode "off"'
MISSING = 'eq .Values.missingDevices "delete"'
RIGID = 'eq .Values.rigidBudgets "violate"'
POD_GROUPS = ".Values.gangs.podGroups"
RESIZE = ".Values.resize"
MPS = 'include "tranche.mps" .'
LIMITS = 'include "tranche.memoryLimits" .'
HOST_PATHS = f"or .Values.isolation.hamiCore .Values.delivery.hostFacts {AS_ROOT} .Values.usage.hostPID"
UI = ".Values.ui.enabled"
UI_EXPOSED = ".Values.ui.exposed"
EXPANDER = ".Values.expander.enabled"
EXCLUDED = "[kube-system, kube-public, kube-node-lease, tranche-system]}"
# The aliases of the scheduler's configuration name it as well.
SCHEDULER_NAMES = Edit("in ['tranche', 'tranche-claims']", 'in {{ include "tranche.schedulerNames" . }}')


def _crd(name: str) -> Template:
    keep = "{{- if .Values.crds.keep }}\n  annotations: {helm.sh/resource-policy: keep}\n  {{- end }}"
    edits = (Edit(f"  name: {name}.gpu.scheduling\n", f"  name: {name}.gpu.scheduling\n  {keep}\n"),)
    return Template(f"crd-{name}.yaml", f"base/crds/{name}.yaml", edits, CRDS)


def _pods(part: str) -> tuple[Edit, ...]:
    """Return the edits that the pods of all three processes share."""
    values = f".Values.{part}"
    call = f'(dict "root" . "own" {values} "part" "{part}")'
    return (
        Edit(
            "    metadata: {labels: *labels}\n",
            "    metadata:\n"
            f'      labels: {{{{- include "tranche.podLabels" (dict "part" "{part}" "own" {values}) | nindent 8 }}}}\n'
            f'      annotations: {{{{- include "tranche.podAnnotations" {call} | nindent 8 }}}}\n',
        ),
        Edit(
            f"      serviceAccountName: tranche-{part}\n",
            f"      serviceAccountName: tranche-{part}\n"
            f'      {{{{- include "tranche.placement" {call} | nindent 6 }}}}\n',
        ),
        Edit(
            "          image: tranche:0.1.0\n",
            f'          image: {{{{ include "tranche.image" {call} }}}}\n'
            f'          {{{{- include "tranche.pullPolicy" {call} | nindent 10 }}}}\n',
        ),
    )


def _resources(part: str, lines: str) -> Edit:
    return Edit(
        f"          resources:\n{lines}",
        f"          resources: {{{{- toYaml .Values.{part}.resources | nindent 12 }}}}\n",
    )


def _deployment(part: str) -> tuple[Edit, ...]:
    budget = "---\napiVersion: policy/v1\nkind: PodDisruptionBudget\n"
    return (
        Edit("  replicas: 2\n", f"  replicas: {{{{ .Values.{part}.replicas }}}}\n"),
        Edit(
            "      priorityClassName: system-cluster-critical\n",
            f"      priorityClassName: {{{{ .Values.{part}.priorityClassName }}}}\n",
        ),
        Edit(budget, f"{{{{- if .Values.{part}.podDisruptionBudget.enabled }}}}\n{budget}"),
        Edit(
            "  minAvailable: 1\n  selector: {matchLabels: *labels}\n",
            f"  minAvailable: {{{{ .Values.{part}.podDisruptionBudget.minAvailable }}}}\n"
            "  selector: {matchLabels: *labels}\n{{- end }}\n",
        ),
    )


WEBHOOK = (
    *_pods("webhook"),
    *_deployment("webhook"),
    _resources(
        "webhook",
        "            requests: {cpu: 100m, memory: 96Mi}\n"
        "            limits: {memory: 1Gi}  # 1,200 connections that have all sent large reviews; 100 MiB otherwise\n",
    ),
    Edit(
        "          command: [python3, -m, webhook]\n",
        '          command: [python3, -m, webhook{{ include "tranche.bindingFlags" . }}'
        f"{{{{ if {HAND_OVER} }}}}, --allocation-resource-claims=hand-over{{{{ end }}}}"
        f"{{{{ if or {NRI} {BY_AGENT} }}}}, --runtime-class-name={{{{ end }}}}]\n"
        f"          {{{{- if {MOUNTED} }}}}\n          args: [--certificates-source=cert-manager]\n"
        "          {{- end }}\n",
    ),
    # A certificate of another issuer is mounted; the process is not root, so its group may read the key.
    Edit(
        "        runAsGroup: 65532\n",
        f"        runAsGroup: 65532\n        {{{{- if {MOUNTED} }}}}\n        fsGroup: 65532\n        {{{{- end }}}}\n",
    ),
    Edit(
        "            - {name: tmp, mountPath: /tmp}\n",
        "            - {name: tmp, mountPath: /tmp}\n"
        f"            {{{{- if {MOUNTED} }}}}\n"
        "            - {name: tls, mountPath: /etc/tranche-tls, readOnly: true}\n            {{- end }}\n",
    ),
    Edit(
        "          emptyDir: {medium: Memory, sizeLimit: 16Mi}\n",
        "          emptyDir: {medium: Memory, sizeLimit: 16Mi}\n"
        f"        {{{{- if {MOUNTED} }}}}\n"
        f"        - {{name: tls, secret: {{secretName: {{{{ {MOUNTED} }}}}, defaultMode: 0440}}}}\n"
        "        {{- end }}\n",
    ),
)

SCHEDULER = (
    *_pods("scheduler"),
    *_deployment("scheduler"),
    _resources(
        "scheduler",
        "            requests: {cpu: 200m, memory: 128Mi}\n"
        "            limits: {memory: 2Gi}"
        "  # 10,000 waiting pods at every limit take 1 GiB, 50,000 running ones 350 MiB\n",
    ),
    Edit(
        "          command: [python3, -m, scheduler]\n",
        '          command: [python3, -m, scheduler{{ include "tranche.bindingFlags" . }}'
        f"{{{{ if {MISSING} }}}}, --missing-devices=delete{{{{ end }}}}"
        f"{{{{ if {RIGID} }}}}, --preemption-rigid-budgets=violate{{{{ end }}}}"
        f"{{{{ if {POD_GROUPS} }}}}, --gangs-pod-groups=true{{{{ end }}}}"
        f"{{{{ if {RESIZE} }}}}, --resize=true{{{{ end }}}}"
        f"{{{{ if {UI} }}}}, --ui-enabled=true{{{{ end }}}}"
        f"{{{{ if {UI_EXPOSED} }}}}, --ui-exposed=true{{{{ end }}}}"
        f"{{{{ if {EXPANDER} }}}}, --expander-enabled=true{{{{ end }}}}]\n"
        '          {{- include "tranche.extenderArguments" . }}\n',
    ),
    Edit(
        "{name: metrics, containerPort: 8444}",
        f"{{name: metrics, containerPort: {{{{ ternary 9090 8444 ({KUBE_SCHEDULER}) }}}}}}",
    ),
    Edit(
        "            - {name: tmp, mountPath: /tmp}\n",
        '            - {name: tmp, mountPath: /tmp}\n        {{- include "tranche.kubeScheduler" . }}\n',
    ),
    Edit(
        "          emptyDir: {medium: Memory, sizeLimit: 16Mi}\n",
        "          emptyDir: {medium: Memory, sizeLimit: 16Mi}\n"
        f"        {{{{- if {KUBE_SCHEDULER} }}}}\n"
        "        - {name: kube-scheduler, configMap: {name: tranche-kube-scheduler-configuration}}\n"
        "        {{- end }}\n",
    ),
)

AGENT = (
    *_pods("agent"),
    Edit(
        "            - {name: NVIDIA_DRIVER_CAPABILITIES, value: utility}\n",
        "            - {name: NVIDIA_DRIVER_CAPABILITIES, value: utility}\n"
        "            {{- with .Values.agent.extraEnv }}\n"
        "            {{- toYaml . | nindent 12 }}\n            {{- end }}\n",
    ),
    Edit(
        "          command: [python3, -m, agent]\n",
        f"          command: [python3, -m, agent{{{{ if {NRI} }}}}, --delivery=nvidia-nri{{{{ end }}}}"
        f"{{{{ if {OWN_NRI} }}}}, --delivery=nri{{{{ end }}}}"
        f"{{{{ if {DEVICE_PLUGIN} }}}}, --delivery=device-plugin{{{{ end }}}}"
        f"{{{{ if {DRA} }}}}, --allocator=label{{{{ end }}}}"
        f"{{{{ if {MPS} }}}}, --mps-pipe-directory=/run/tranche/mps{{{{ end }}}}"
        f"{{{{ if {LIMITS} }}}}, --memory-limits=agent{{{{ end }}}}]\n",
    ),
    Edit(
        "        runAsNonRoot: true\n        runAsUser: 65532\n        runAsGroup: 65532\n",
        f"        runAsNonRoot: {{{{ not {AS_ROOT} }}}}\n"
        f"        runAsUser: {{{{ ternary 0 65532 {AS_ROOT} }}}}\n"
        f"        runAsGroup: {{{{ ternary 0 65532 {AS_ROOT} }}}}\n",
    ),
    # The driver asks for a privileged process, which sees the control groups of the host.
    Edit(
        "            allowPrivilegeEscalation: false\n            readOnlyRootFilesystem: true\n"
        "            capabilities: {drop: [ALL]}\n",
        f"            {{{{- if {LIMITS} }}}}\n            privileged: true\n            {{{{- else }}}}\n"
        "            allowPrivilegeEscalation: false\n            capabilities: {drop: [ALL]}\n"
        "            {{- end }}\n            readOnlyRootFilesystem: true\n",
    ),
    _resources("agent", "            requests: {cpu: 20m, memory: 64Mi}\n            limits: {memory: 256Mi}\n"),
    Edit(
        "      priorityClassName: system-node-critical\n",
        "      priorityClassName: {{ .Values.agent.priorityClassName }}\n"
        "      {{- if .Values.usage.hostPID }}\n      hostPID: true\n      {{- end }}\n",
    ),
    Edit(
        "      runtimeClassName: nvidia\n",
        f"      {{{{- if and .Values.runtimeClassName (not {NRI}) }}}}\n"
        "      runtimeClassName: {{ .Values.runtimeClassName }}\n      {{- end }}\n",
    ),
    Edit(
        "      affinity:\n        nodeAffinity:\n          requiredDuringSchedulingIgnoredDuringExecution:\n"
        "            nodeSelectorTerms:\n              - matchExpressions:\n"
        '                  - {key: gpu, operator: In, values: ["on", tranche]}\n'
        "      tolerations:\n        - {operator: Exists}\n",
        "      affinity:\n        nodeAffinity:\n          requiredDuringSchedulingIgnoredDuringExecution:\n"
        "            nodeSelectorTerms:\n              - matchExpressions:\n"
        "                  - {key: gpu, operator: In, values: "
        f'{{{{ {HAMI} | ternary "[tranche]" "[\'on\', tranche]" }}}}}}\n',
    ),
    Edit(
        "            - {name: tmp, mountPath: /tmp}\n",
        "            - {name: tmp, mountPath: /tmp}\n            {{- if .Values.isolation.hamiCore }}\n"
        "            - {name: hami-core, mountPath: /usr/local/vgpu, readOnly: true}\n            {{- end }}\n"
        '            {{- include "tranche.hostFactMounts" . }}\n'
        f"            {{{{- if {OWN_NRI} }}}}\n"
        "            - {name: nri-plugins, mountPath: /var/run/nri}\n"
        "            - {name: nri-files, mountPath: /run/tranche}\n            {{- end }}\n"
        '            {{- include "tranche.kubeletMounts" . }}\n',
    ),
    Edit(
        "          emptyDir: {medium: Memory, sizeLimit: 16Mi}\n",
        "          emptyDir: {medium: Memory, sizeLimit: 16Mi}\n        {{- if .Values.isolation.hamiCore }}\n"
        "        - {name: hami-core, hostPath: {path: /usr/local/vgpu, type: DirectoryOrCreate}}\n        {{- end }}\n"
        '        {{- include "tranche.hostFactVolumes" . }}\n'
        f"        {{{{- if {OWN_NRI} }}}}\n"
        "        - {name: nri-plugins, hostPath: {path: /var/run/nri, type: DirectoryOrCreate}}\n"
        "        - {name: nri-files, hostPath: {path: /run/tranche, type: DirectoryOrCreate}}\n        {{- end }}\n"
        '        {{- include "tranche.kubeletVolumes" . }}\n',
    ),
)

# The daemon runs where an agent does, from the same image.
MPS_DAEMON = (
    Edit(
        "      serviceAccountName: default\n",
        "      serviceAccountName: default\n"
        '      {{- $own := pick .Values.agent "tolerations" }}\n'
        '      {{- include "tranche.placement" (dict "root" . "own" $own) | nindent 6 }}\n',
    ),
    Edit("      tolerations:\n        - {operator: Exists}\n", ""),
    Edit(
        "      priorityClassName: system-node-critical\n      runtimeClassName: nvidia\n",
        "      priorityClassName: {{ .Values.agent.priorityClassName }}\n"
        "      {{- with .Values.runtimeClassName }}\n      runtimeClassName: {{ . }}\n      {{- end }}\n",
    ),
    Edit(
        "          image: tranche:0.1.0\n",
        '          image: {{ include "tranche.image" (dict "root" . "own" .Values.agent) }}\n'
        '          {{- include "tranche.pullPolicy" (dict "root" . "own" .Values.agent) | nindent 10 }}\n',
    ),
)

CONFIGURATION = (
    Edit(
        "  config.yaml: |\n    webhook:\n      runtime_class_name: nvidia\n"
        "    scheduler:\n      host: 0.0.0.0\n      namespace_api:\n        port: 8445\n",
        '  config.yaml: |\n    {{- include "tranche.configuration" . | nindent 4 }}\n',
    ),
)

NETWORK = (
    Edit(
        "kubernetes.io/metadata.name: monitoring",
        "kubernetes.io/metadata.name: {{ .Values.networkPolicy.metricsNamespace }}",
    ),
)

# In extender mode kube-scheduler brings the rights for volumes.
SCHEDULER_RBAC = (
    Edit(
        "---\n# Preemption. A role of its own",
        f"{{{{- if {PREEMPTION} }}}}\n---\n# Preemption. A role of its own",
    ),
    Edit(
        "---\n# Volumes. A role of its own",
        f"{{{{- end }}}}\n{{{{- if not {EXTENDER} }}}}\n---\n# Volumes. A role of its own",
    ),
    Edit("---\n# Leader election", "{{- end }}\n---\n# Leader election"),
)

DRA_GUARD = (
    Edit(
        "apiVersion: resource.k8s.io/v1\nkind: DeviceTaintRule\n",
        "{{- range .Values.draGuard.drivers }}\n---\napiVersion: resource.k8s.io/v1\nkind: DeviceTaintRule\n",
    ),
    Edit("tranche-ledger-gpu.nvidia.com", "tranche-ledger-{{ . }}"),
    Edit("{driver: gpu.nvidia.com}", "{driver: {{ . }}}"),
    Edit("effect: NoSchedule}\n---\n", "effect: NoSchedule}\n{{- end }}\n---\n"),
    Edit("['gpu-operator','nvidia-dra-driver-gpu']", "{{ .Values.draGuard.namespaces | toJson | replace `\"` `'` }}"),
)

# The role, the binding, and the canary are for a webhook that issues its own certificates.
WEBHOOK_RBAC = (
    Edit(
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n",
        f"{{{{- if not ({MOUNTED}) }}}}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n",
    ),
    Edit(
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n",
        "{{- end }}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n",
    ),
    Edit(
        "    verbs: [get, list, watch, patch]\n",
        f'    verbs: {{{{ {MOUNTED} | empty | ternary "[get, list, watch, patch]" "[get, list, watch]" }}}}\n',
    ),
)
CLIENT = (
    "    clientConfig: &client\n      service:\n        name: tranche-webhook\n        namespace: tranche-system\n"
    "        path: /mutate\n        port: 443\n"
)
ENTRY = (
    "    clientConfig: *client\n    admissionReviewVersions: *versions\n    sideEffects: None\n"
    "    failurePolicy: Ignore\n    reinvocationPolicy: IfNeeded\n    timeoutSeconds: 5\n    matchPolicy: Equivalent\n"
    "    rules: *rules\n"
)
WEBHOOK_CONFIGURATION = (
    Edit(
        "kind: MutatingWebhookConfiguration\nmetadata:\n  name: tranche\n",
        "kind: MutatingWebhookConfiguration\nmetadata:\n  name: tranche\n"
        f"  {{{{- if {CERT_MANAGER} }}}}\n"
        "  annotations: {cert-manager.io/inject-ca-from: tranche-system/tranche-webhook}\n  {{- end }}\n",
    ),
    Edit(EXCLUDED, '{{ include "tranche.excludedNamespaces" . }}}', count=3),
    Edit(CLIENT, f'{CLIENT}{{{{- include "tranche.caBundle" . }}}}\n'),
    Edit(
        "  # Pods that opt in by their own label, unless",
        '  {{- with include "tranche.includedNamespaces" . | fromJsonArray }}\n'
        "  # Namespaces that are opted in by name; pods that opt in by their own label have an entry already.\n"
        "  - name: included.gpu.scheduling\n"
        f"{ENTRY}"
        "    namespaceSelector:\n"
        "      matchExpressions:\n"
        "        - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}\n"
        "        - {key: gpu.scheduling/injection, operator: NotIn, values: [enabled]}\n"
        "    objectSelector:\n"
        "      matchExpressions:\n"
        "        - {key: gpu.scheduling/injection, operator: NotIn, values: [enabled, disabled]}\n"
        "        - {key: hami.io/webhook, operator: NotIn, values: [ignore]}\n"
        "    matchConditions: *conditions\n"
        "  {{- end }}\n"
        "  # Pods that opt in by their own label, unless",
    ),
    Edit(
        "  # A certificate of a new authority is tested here",
        f"  {{{{- if not ({MOUNTED}) }}}}\n  # A certificate of a new authority is tested here",
    ),
    Edit(
        "---\n# Patched only in dry runs",
        "{{- end }}\n{{- if .Values.webhook.completeTemplates }}\n"
        '{{- include "tranche.templateEntry" . }}\n{{- end }}\n'
        "---\n# Patched only in dry runs",
    ),
)
# The patch of the component becomes an entry of the list.
TEMPLATE_ENTRY = (
    Edit("# The condition is", '{{- define "tranche.templateEntry" }}\n  # The condition is'),
    Edit("- op: add\n  path: /webhooks/-\n  value:\n    name:", "  - name:"),
    Edit("        port: 443\n", '        port: 443\n{{- include "tranche.caBundle" . }}\n'),
    Edit(EXCLUDED, '{{ include "tranche.excludedNamespaces" . }}}'),
    Edit("k.contains('.gpu.scheduling/'))))\n", "k.contains('.gpu.scheduling/'))))\n{{- end }}\n"),
)
POLICIES = (
    Edit(
        'isEverywhere\n      expression: "false"',
        "isEverywhere\n      expression: {{ .Values.clusterWide | quote }}",
        2,
    ),
    Edit(
        "expression: \"['gpu-operator']\"",
        'expression: {{ include "tranche.operatorNamespaces" . | quote }}',
        2,
    ),
    Edit(
        'name: includedNamespaces\n      expression: "[]"',
        "name: includedNamespaces\n      expression: "
        '{{ include "tranche.celList" (include "tranche.includedNamespaces" . | fromJsonArray) | quote }}',
        2,
    ),
    Edit(
        "allowedIsolations\n      expression: \"['', 'none', 'hami-core', 'mps', 'mig', 'cuda']\"",
        'allowedIsolations\n      expression: {{ include "tranche.allowedIsolations" . | quote }}',
    ),
    Edit(
        "in\n            ['', 'none', 'hami-core', 'mps', 'mig', 'cuda']",
        'in\n            {{ include "tranche.allowedIsolations" . }}',
    ),
    Edit(
        'name: plugins\n      expression: "[]"',
        f'name: plugins\n      expression: {{{{ include "tranche.celList" ({HAMI} | ternary'
        " (list .Values.hamiNodes.pluginUser) list) | quote }}",
    ),
    Edit(
        'name: resizers\n      expression: "[]"',
        f'name: resizers\n      expression: "{{{{ if {RESIZE} }}}}'
        "['system:serviceaccount:tranche-system:tranche-scheduler']{{ else }}[]{{ end }}\"",
    ),
    Edit(SCHEDULER_NAMES.old, SCHEDULER_NAMES.new, 6),
)
NAMESPACE = (
    Edit(
        "pod-security.kubernetes.io/enforce: restricted",
        f'pod-security.kubernetes.io/enforce: {{{{ {HOST_PATHS} | ternary "privileged" "restricted" }}}}',
    ),
)

WRITERS = (
    Edit(
        'name: writers\n      expression: "[]"',
        'name: writers\n      expression: {{ include "tranche.celList" .Values.bindings.writers | quote }}',
    ),
)

ALL = (
    Template("namespace.yaml", "base/namespace.yaml", NAMESPACE, ".Values.namespace.create"),
    _crd("gpuclaims"),
    _crd("gpunodestatuses"),
    _crd("gpuqueues"),
    _crd("gpuquotas"),
    _crd("leaderships"),
    Template("rbac-agent.yaml", "base/rbac/agent.yaml"),
    Template("rbac-editor.yaml", "base/rbac/editor.yaml"),
    Template("rbac-operator.yaml", "base/rbac/operator.yaml"),
    Template("rbac-scheduler.yaml", "base/rbac/scheduler.yaml", SCHEDULER_RBAC),
    Template("rbac-scheduler-api.yaml", "base/rbac/scheduler-api.yaml"),
    Template("rbac-viewer.yaml", "base/rbac/viewer.yaml"),
    Template("rbac-webhook.yaml", "base/rbac/webhook.yaml", WEBHOOK_RBAC),
    Template("webhook-configuration.yaml", "base/webhook.yaml", WEBHOOK_CONFIGURATION),
    Template("_webhook-templates.tpl", "complete-templates/entry.yaml", TEMPLATE_ENTRY),
    Template("policies.yaml", "base/policies.yaml", POLICIES),
    Template("policies-lifetime.yaml", "base/policies-lifetime.yaml"),
    Template("policies-limits.yaml", "base/policies-limits.yaml"),
    Template("policies-queues.yaml", "base/policies-queues.yaml"),
    Template("policies-fence.yaml", "base/fence.yaml"),
    Template("policies-device-leases.yaml", "base/device-leases.yaml"),
    Template("policies-identities.yaml", "base/identities.yaml"),
    Template("configuration.yaml", "base/deployments/configuration.yaml", CONFIGURATION),
    Template("webhook.yaml", "base/deployments/webhook.yaml", WEBHOOK),
    Template("scheduler.yaml", "base/deployments/scheduler.yaml", SCHEDULER),
    Template("agent.yaml", "base/deployments/agent.yaml", AGENT),
    Template("memory-limits.yaml", "memory-limits/rbac.yaml", condition=LIMITS),
    Template("mps.yaml", "mps/daemon.yaml", MPS_DAEMON, MPS),
    Template("network-policies.yaml", "base/deployments/network.yaml", NETWORK, ".Values.networkPolicy.enabled"),
    Template("cert-manager.yaml", "cert-manager/certificate.yaml", condition=CERT_MANAGER),
    Template("hami-nodes.yaml", "hami-nodes/scheduler.yaml", condition=HAMI),
    Template("extender.yaml", "extender/rbac.yaml", condition=EXTENDER),
    Template("resource-claims.yaml", "resource-claims/rbac.yaml", condition=HAND_OVER),
    Template("missing-devices.yaml", "missing-devices/scheduler.yaml", condition=MISSING),
    Template("priority-quota.yaml", "priority-quota/quota.yaml", condition=".Values.priorityQuota"),
    Template("dra-guard.yaml", "dra-guard/guard.yaml", DRA_GUARD, ".Values.draGuard.enabled"),
    Template("dra.yaml", "dra/class.yaml", condition=DRA),
    Template("rbac-dra.yaml", "dra/agent.yaml", condition=DRA),
    # In extender mode kube-scheduler, under the same identity, deletes pods without cards as well.
    Template("rigid-budgets.yaml", "rigid-budgets/scheduler.yaml", condition=f"and ({RIGID}) (not {EXTENDER})"),
    Template("resize.yaml", "resize/scheduler.yaml", condition=RESIZE),
    Template("rbac-device-plugin.yaml", "device-plugin/agent.yaml", condition=DEVICE_PLUGIN),
    Template("rbac-page.yaml", "ui-exposed/role.yaml", condition=UI_EXPOSED),
    Template("expander.yaml", "expander/scheduler.yaml", condition=EXPANDER),
    Template("coscheduling.yaml", "coscheduling/rbac.yaml", condition=POD_GROUPS),
    Template("crd-gpubindings.yaml", "gpubindings/crd.yaml", condition=f"{CRDS} ({BINDINGS})"),
    Template("gpubindings.yaml", "gpubindings/rbac.yaml", condition=BINDINGS),
    Template(
        "policies-gpubinding-writers.yaml",
        "gpubindings/writers/policy.yaml",
        WRITERS,
        f"and ({BINDINGS}) .Values.bindings.writers",
    ),
)
# Files that templates read as they are: they hold `{{` of Prometheus and Grafana.
FILES = {
    "tranche.rules.yaml": "alerts/tranche.rules.yaml",
    "tranche.dashboard.json": "dashboards/tranche.json",
    "kube-scheduler.yaml": "extender/kube-scheduler.yaml",
    "kube-scheduler-claims.yaml": "resource-claims/kube-scheduler.yaml",
}
