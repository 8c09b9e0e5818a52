{{- /* The arguments `root` and `own` are the chart's context and the values of one process. */ -}}

{{- /* The name of `image`, with its tag or digest. */ -}}
{{- define "tranche.imageName" -}}
{{- $registry := .root.Values.global.imageRegistry | default .image.registry -}}
{{- if kindIs "invalid" $registry -}}
{{- fail "image.registry is not set: name the registry that has the image, such as --set image.registry=registry.example.com/team (docs/install.md#image), or --set image.registry= if each node has the image already" -}}
{{- end -}}
{{- $name := compact (list $registry .image.repository) | join "/" -}}
{{- if .image.digest -}}
{{ $name }}@{{ .image.digest }}
{{- else -}}
{{ $name }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "tranche.image" -}}
{{- $image := mergeOverwrite (deepCopy .root.Values.image) (.own.image | default dict) -}}
{{- include "tranche.imageName" (dict "root" .root "image" $image) -}}
{{- end -}}

{{- define "tranche.pullPolicy" -}}
{{- $image := mergeOverwrite (deepCopy .root.Values.image) (.own.image | default dict) -}}
{{- with $image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end -}}
{{- end -}}

{{- define "tranche.podLabels" -}}
{{- toYaml (merge (dict "app.kubernetes.io/name" "tranche" "app.kubernetes.io/component" .part) .own.podLabels) -}}
{{- end -}}

{{- /* A changed configuration replaces the pods. */ -}}
{{- define "tranche.podAnnotations" -}}
{{- $fixed := dict "checksum/config" (include "tranche.configuration" .root | sha256sum) -}}
{{- if and .root.Values.delivery.nvidiaNri (eq .part "agent") -}}
{{- $_ := set $fixed "nvidia.cdi.k8s.io/container.agent" "nvidia.com/gpu=all" -}}
{{- end -}}
{{- toYaml (merge $fixed .own.podAnnotations) -}}
{{- end -}}

{{- define "tranche.placement" -}}
{{- with concat .root.Values.global.imagePullSecrets .root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .own.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .own.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .own.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- define "tranche.configuration" -}}
{{- $configuration := dict -}}
{{- with .Values.runtimeClassName }}{{ $configuration = dict "webhook" (dict "runtime_class_name" .) }}{{ end -}}
{{- with include "tranche.includedNamespaces" . | fromJsonArray }}
{{- $configuration = mergeOverwrite $configuration (dict "webhook" (dict "included_namespaces" .)) }}
{{- end -}}
{{- $excluded := include "tranche.excludedNamespaces" . | fromJsonArray -}}
{{- if ne (toJson $excluded) (toJson (list "kube-system" "kube-public" "kube-node-lease" "tranche-system")) -}}
{{- $configuration = mergeOverwrite $configuration (dict "webhook" (dict "excluded_namespaces" $excluded)) -}}
{{- end -}}
{{- $account := include "tranche.schedulerAccount" . -}}
{{- if ne $account "tranche-scheduler" -}}
{{- $trusted := list (printf "system:serviceaccount:tranche-system:%s" $account) "system:serviceaccount:tranche-system:tranche-static" -}}
{{- $configuration = mergeOverwrite $configuration (dict "webhook" (dict "trusted" $trusted)) -}}
{{- end -}}
{{- toYaml (mergeOverwrite $configuration (deepCopy .Values.config)) -}}
{{- end -}}

{{- /* A list of strings in CEL. */ -}}
{{- define "tranche.celList" -}}
[{{ range $index, $each := . }}{{ if $index }}, {{ end }}'{{ $each }}'{{ end }}]
{{- end -}}

{{- /* Whether the daemon of MPS runs; empty for no. */ -}}
{{- define "tranche.mps" -}}
{{- if .Values.isolation.mps -}}
{{- if not .Values.delivery.nri -}}
{{- fail "isolation.mps: without delivery.nri=true no container would have the pipes of the daemon (docs/isolation.md#what-the-agent-adds)" -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{- /* Whether the agent sets the driver's limits; empty for no. */ -}}
{{- define "tranche.memoryLimits" -}}
{{- if .Values.isolation.memoryLimits -}}
{{- if not .Values.delivery.nri -}}
{{- fail "isolation.memoryLimits: without delivery.nri=true the agent does not know of containers (docs/isolation.md#what-is-left-to-you)" -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{- /* '' stands for a pod that chose none. */ -}}
{{- define "tranche.allowedIsolations" -}}
{{- $webhook := .Values.config.webhook | default dict -}}
{{- $allowed := $webhook.allowed_isolations | default (list "none" "hami-core" "mps" "mig" "cuda") -}}
{{- include "tranche.celList" (has "none" $allowed | ternary (prepend $allowed "") $allowed) -}}
{{- end -}}

{{- define "tranche.schedulerNames" -}}
{{- $scheduler := .Values.config.scheduler | default dict -}}
{{- include "tranche.celList" (concat (list "tranche") ($scheduler.aliases | default list) (list "tranche-claims")) -}}
{{- end -}}

{{- /* Flags, as in manifests/gpubindings, and not `config`: definition and roles depend on the mode as well. */ -}}
{{- define "tranche.bindingFlags" -}}
{{- if dig "bindings" dict (.Values.config.allocation | default dict) -}}
{{- fail "config.allocation.bindings: set bindings.mode and bindings.requireNamespace instead" -}}
{{- end -}}
{{- if ne .Values.bindings.mode "off" -}}
, --allocation-bindings-mode={{ .Values.bindings.mode }}
{{- if .Values.bindings.requireNamespace -}}
, --allocation-bindings-require-namespace=true
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tranche.extenderArguments" -}}
{{- if and .Values.extender.enabled .Values.resourceClaims.enabled -}}
{{- fail "resourceClaims.enabled: in extender mode kube-scheduler has all pods; set only one of extender.enabled and resourceClaims.enabled" -}}
{{- end -}}
{{- if dig "resource_claims" "" (.Values.config.allocation | default dict) -}}
{{- fail "config.allocation.resource_claims: set resourceClaims.enabled instead" -}}
{{- end -}}
{{- if or .Values.extender.enabled .Values.resourceClaims.enabled }}
          # Only the other container of the pod reaches the extender; probes and Prometheus have a port without its verbs.
          args:
            - {{ .Values.extender.enabled | ternary "--extender" "--allocation-resource-claims=hand-over" }}
            - --host=127.0.0.1
            - --probe-port=9090
            - --kube-scheduler-lease-namespace=tranche-system
            - --kube-scheduler-lease-name=tranche-kube-scheduler
{{- end -}}
{{- end -}}

{{- define "tranche.kubeScheduler" -}}
{{- if or .Values.extender.enabled .Values.resourceClaims.enabled }}
{{- $own := .Values.extender.enabled | ternary .Values.extender .Values.resourceClaims }}
        - name: kube-scheduler
          image: {{ include "tranche.imageName" (dict "root" . "image" $own.image) }}
          {{- with $own.image.pullPolicy }}
          imagePullPolicy: {{ . }}
          {{- end }}
          command: [kube-scheduler, --config=/etc/kubernetes/config.yaml, --authentication-skip-lookup=true]
          ports:
            - {name: kube-scheduler, containerPort: 10259}
          {{- if .Values.extender.enabled }}
          readinessProbe:
            httpGet: {path: /readyz, port: kube-scheduler, scheme: HTTPS}
            periodSeconds: 5
          {{- end }}
          livenessProbe:
            httpGet: {path: /livez, port: kube-scheduler, scheme: HTTPS}
            periodSeconds: 10
            timeoutSeconds: 5
          resources: {{- toYaml $own.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            - {name: kube-scheduler, mountPath: /etc/kubernetes, readOnly: true}
{{- end -}}
{{- end -}}

{{- /* With NVIDIA's NRI plugin, the agent gets its cards by an annotation as well. */ -}}
{{- define "tranche.operatorNamespaces" -}}
{{- $own := .Values.delivery.nvidiaNri | ternary (list "tranche-system") list -}}
{{- include "tranche.celList" (concat .Values.gpuOperator.namespaces $own) -}}
{{- end -}}

{{- define "tranche.hostFactMounts" -}}
{{- if .Values.delivery.hostFacts }}
            - {name: operator-toolkit, mountPath: /host/usr/local/nvidia/toolkit, readOnly: true}
            - {name: package-toolkit, mountPath: /host/etc/nvidia-container-runtime, readOnly: true}
            - {name: nri, mountPath: /host/var/run/nri, readOnly: true}
{{- end -}}
{{- end -}}

{{- define "tranche.hostFactVolumes" -}}
{{- if .Values.delivery.hostFacts }}
        - {name: operator-toolkit, hostPath: {path: /usr/local/nvidia/toolkit, type: DirectoryOrCreate}}
        - {name: package-toolkit, hostPath: {path: /etc/nvidia-container-runtime, type: DirectoryOrCreate}}
        - {name: nri, hostPath: {path: /var/run/nri, type: DirectoryOrCreate}}
{{- end -}}
{{- end -}}

{{- define "tranche.kubeletMounts" -}}
{{- if .Values.delivery.devicePlugin }}
            - {name: device-plugins, mountPath: /var/lib/kubelet/device-plugins}
            - {name: pod-resources, mountPath: /var/lib/kubelet/pod-resources, readOnly: true}
{{- end -}}
{{- if .Values.dra.enabled }}
            - {name: dra-plugin, mountPath: /var/lib/kubelet/plugins/gpu.scheduling}
            - {name: dra-registration, mountPath: /var/lib/kubelet/plugins_registry}
            - {name: dra-cdi, mountPath: /var/run/cdi}
{{- end -}}
{{- end -}}

{{- define "tranche.kubeletVolumes" -}}
{{- if .Values.delivery.devicePlugin }}
        - {name: device-plugins, hostPath: {path: /var/lib/kubelet/device-plugins, type: DirectoryOrCreate}}
        - {name: pod-resources, hostPath: {path: /var/lib/kubelet/pod-resources, type: DirectoryOrCreate}}
{{- end -}}
{{- if .Values.dra.enabled }}
        - {name: dra-plugin, hostPath: {path: /var/lib/kubelet/plugins/gpu.scheduling, type: DirectoryOrCreate}}
        - {name: dra-registration, hostPath: {path: /var/lib/kubelet/plugins_registry, type: DirectoryOrCreate}}
        - {name: dra-cdi, hostPath: {path: /var/run/cdi, type: DirectoryOrCreate}}
{{- end -}}
{{- end -}}

{{- /* Where and how Prometheus scrapes; `job` names the process, as the alerts do. */ -}}
{{- define "tranche.metricsEndpoints" -}}
- port: metrics
  interval: {{ .interval }}
  honorLabels: true  # label `namespace` of a quota is that of the quota, not of the scheduler
  relabelings:
    - sourceLabels: [__meta_kubernetes_pod_label_app_kubernetes_io_component]
      targetLabel: job
      replacement: tranche-$1
{{- end -}}
