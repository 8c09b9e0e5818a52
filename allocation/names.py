"""Every name that users or more than one process see. docs/interfaces.md describes them."""

import hashlib
from typing import Final

SCHEDULER_NAME: Final = "tranche"
HAND_OVER_NAME: Final = "tranche-claims"
"""The schedulerName of GPU pods with `resourceClaims` where these are handed over (docs/resource-claims.md)."""
SCHEDULER_NAMES: Final = (SCHEDULER_NAME, HAND_OVER_NAME)
SYSTEM_NAMESPACE: Final = "tranche-system"
API_GROUP: Final = "gpu.scheduling"
API_VERSION: Final = "v1"
BINDING_GROUP: Final = "gpu.bytetrade.io"
BINDING_VERSION: Final = "v1alpha1"

MAX_NAME_LENGTH: Final = 253
_MAX_LABEL_LENGTH: Final = 63
HEARTBEAT_PREFIX: Final = "agent-"
LEGACY_HEARTBEAT_PREFIX: Final = "gpu-"
"""Of the Leases that agents of early versions renew; since then the prefix belongs to the Leases of cards."""
DEVICE_PREFIX: Final = "gpu-"
MANAGED_LABEL: Final = "gpu.scheduling/managed"
"""On the Leases of cards: `true`."""
POD_LABEL: Final = "gpu.scheduling/pod"
"""On the Lease of a card: the name of the pod that has the card, shortened with a hash beyond 63 characters."""
POD_REF: Final = "gpu.scheduling/pod-ref"
"""On the Lease of a card: the namespace and the name of the pod that has the card, `<namespace>/<name>`."""
NODE: Final = "gpu.scheduling/node"
"""On the Lease of a card: the card's node."""
CARD: Final = "gpu.scheduling/card"
"""On the Lease of a card: the UUID of the card, or of the MIG instance."""

DRA_DRIVER: Final = API_GROUP
"""The DRA driver of the cards that Kubernetes allocates, and its DeviceClass (docs/dra.md)."""
DRA_SINCE: Final = (1, 36)
"""The first version of Kubernetes whose scheduler shares a device as our slices offer it."""
NODE_DRAINING_TAINT: Final = "gpu.scheduling/draining"
"""On all devices of a node that goes back to the ledger."""
CARD_UNHEALTHY_TAINT: Final = "gpu.scheduling/unhealthy"
CARD_CORDONED_TAINT: Final = "gpu.scheduling/cordoned"

# ---- what a user can set -------------------------------------------------------------------------------------------

INJECTION_LABEL: Final = "gpu.scheduling/injection"
"""On a namespace or a pod: `enabled` or `disabled`; the pod's value takes precedence."""
HAMI_WEBHOOK_LABEL: Final = "hami.io/webhook"
"""On a pod: `ignore` opts it out of admission, as in HAMi."""
AGENT_LABEL: Final = "gpu"
"""On a node: an agent runs there if the value is one of these; `tranche` where HAMi's plugin has the other nodes."""
AGENT_LABEL_VALUES: Final = frozenset({"on", "tranche"})
CLAIM: Final = "gpu.scheduling/claim"
"""On a pod: the name of the GpuClaim, in the pod's namespace, whose cards its GPU containers get."""
QUEUE: Final = "gpu.scheduling/queue"
"""On a pod, a label: the GpuQueue that it belongs to. On a namespace, the same for its pods without the label."""
RESREQ: Final = "gpu.scheduling/resreq"
"""On a pod, an annotation: what it requires, such as `cpu=4,mem=16g,gpu=2`, for a pod that requests no resources."""
ISOLATION: Final = "gpu.scheduling/isolation"
"""On a pod, an annotation: what enforces its limits (`allocation.isolation`). On a namespace, a label: the same for its
pods without the annotation."""
PREEMPTION_PROTECTION: Final = "gpu.scheduling/preemption-protection"
"""On a pod, an annotation: for how long after its creation no other pod preempts it, such as `30m` or `2h`."""
RESIZE: Final = "gpu.scheduling/resize"
"""On a running pod, an annotation: the memory and cores that its containers are to have of their cards."""
LIMITS: Final = "gpu.scheduling/limits"
"""On a pod, an annotation: the most that its containers may use of their cards, where that is above their requests."""
INDEX: Final = "gpu.scheduling/index"
"""On a pod, an annotation: a number that no other live pod has, which the scheduler's API has assigned."""
HOST_PORT: Final = "gpu.scheduling/host-port"
"""On a pod, an annotation: a host port that no other live pod has, which the scheduler's API has assigned."""
EVICTABLE: Final = "gpu.scheduling/evictable"
"""On a pod, an annotation: `false` if consolidation never moves it, `true` if it may whatever controls the pod."""
GANG: Final = "gpu.scheduling/gang"
"""On a pod, a label or an annotation: the gang that it belongs to, whose pods get nodes together or not at all."""
GANG_BY: Final = "gpu.scheduling/gang-by"
"""On a pod, an annotation: the key of its label, such as `batch.kubernetes.io/job-name`, whose value is the gang."""
GANG_MIN_MEMBERS: Final = "gpu.scheduling/gang-min-members"
"""On a pod, an annotation: how many pods of its gang have to get nodes together."""
GANG_TIMEOUT: Final = "gpu.scheduling/gang-timeout"
"""On a pod, an annotation: how long its gang may wait, or be incomplete, such as `10m`."""
GANG_BLOCK: Final = "gpu.scheduling/gang-block"
"""On a pod, an annotation: the key of a node label whose value all nodes of its gang must share."""

COSCHEDULING_GROUP: Final = "scheduling.x-k8s.io/pod-group"
"""On a pod, a label: its PodGroup, as the coscheduling plugin of kube-scheduler reads it."""
OLD_COSCHEDULING_GROUPS: Final = (
    "pod-group.scheduling.sigs.k8s.io/name",
    "pod-group.scheduling.sigs.k8s.io",
)
OLD_COSCHEDULING_SIZE: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
KOORDINATOR_GANG: Final = "gang.scheduling.koordinator.sh/name"
KOORDINATOR_SIZE: Final = "gang.scheduling.koordinator.sh/min-available"
KOORDINATOR_TIMEOUT: Final = "gang.scheduling.koordinator.sh/waiting-time"
KUEUE_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_SIZE: Final = "kueue.x-k8s.io/pod-group-total-count"
TENSOR_FUSION_GANG: Final = "tensor-fusion.ai/gang-enabled"
TENSOR_FUSION_GROUP: Final = "tensor-fusion.ai/gang-group-key"
TENSOR_FUSION_REQUIRED: Final = "tensor-fusion.ai/gang-required-members"
TENSOR_FUSION_MIN_MEMBERS: Final = "tensor-fusion.ai/gang-min-members"
TENSOR_FUSION_TIMEOUT: Final = "tensor-fusion.ai/gang-timeout"

NODE_POLICY: Final = "hami.io/node-scheduler-policy"
CARD_POLICY: Final = "hami.io/gpu-scheduler-policy"
WEIGHTS: Final = "hami.io/device-scoring-weights"
USE_UUIDS: Final = "nvidia.com/use-gpuuuid"
AVOID_UUIDS: Final = "nvidia.com/nouse-gpuuuid"
USE_TYPES: Final = "nvidia.com/use-gputype"
AVOID_TYPES: Final = "nvidia.com/nouse-gputype"
NUMA_BIND: Final = "nvidia.com/numa-bind"
MODE: Final = "nvidia.com/vgpu-mode"
REQUIRE_TOPOLOGY: Final = "tensor-fusion.ai/require-gpu-topology"
TOPOLOGY_MAX_TIER: Final = "tensor-fusion.ai/gpu-topology-max-tier"
TOPOLOGY_SOURCE: Final = "tensor-fusion.ai/gpu-topology-source"

APP_NAME: Final = "applications.app.bytetrade.io/name"
"""On a pod, a label: the application that it belongs to, whose cards GPUBindings name."""
APP_OWNER: Final = "applications.app.bytetrade.io/owner"
"""On a pod, a label: the user whose application it is."""
CONSUME_POLICY: Final = "gpu.bytetrade.io/app-pod-consume-policy"
"""On a pod, a label or an annotation: `all` or `single` of the cards that are bound to its application."""

CONSTRAINT_KEYS: Final = frozenset(
    {
        *(NODE_POLICY, CARD_POLICY, WEIGHTS, USE_UUIDS, AVOID_UUIDS, USE_TYPES, AVOID_TYPES, NUMA_BIND, MODE),
        *(REQUIRE_TOPOLOGY, TOPOLOGY_MAX_TIER, TOPOLOGY_SOURCE),
    }
)
"""The annotations by which a pod constrains its cards and nodes."""

# ---- what only the scheduler writes (or, for a static allocation, a trusted identity) ------------------------------

ALLOCATION: Final = "gpu.scheduling/allocation"
ALLOCATED: Final = "gpu.scheduling/allocated"
LEADER: Final = "gpu.scheduling/leader"
CHARGED_TO: Final = "gpu.scheduling/charged-to"
"""On a pod: the queue that pays for its share, whatever its labels say later."""
RESIZED: Final = "gpu.scheduling/resized"
"""On a pod: what its containers may still use that they had before it was resized. Also the key of a toleration."""
RETRY: Final = "gpu.scheduling/Retry"
"""On a pod, a condition: in extender mode, kube-scheduler is to try the pod again."""
FENCED_LABEL: Final = "gpu.scheduling/fenced"
REQUIRED_PLUGINS: Final = "required-plugins.noderesource.dev"
"""On a pod: the plugins without which containerd's validator refuses its containers, as a YAML list."""
DELIVERED: Final = "gpu.scheduling/delivered"
"""On a container, as the runtime knows it: the cards that the agent's plugin gave it."""
PLACEHOLDER: Final = "gpu.scheduling/placeholder"
"""On a pod of the system namespace, a label: the group of nodes of which an autoscaler is asked for one."""
HAMI_NODE: Final = "hami.io/vgpu-node"
HAMI_TIME: Final = "hami.io/vgpu-time"
HAMI_ALLOCATED: Final = "hami.io/vgpu-devices-allocated"
HAMI_MIG: Final = "hami.io/vgpu-mig-allocations"
HAMI_TO_ALLOCATE: Final = "hami.io/vgpu-devices-to-allocate"
HAMI_BIND_PHASE: Final = "hami.io/bind-phase"
HAMI_BIND_TIME: Final = "hami.io/bind-time"

ENVIRONMENT_DOMAIN: Final = "gpu.scheduling"

# ---- what certs and webhook exchange -------------------------------------------------------------------------------

CANARY: Final = "gpu.scheduling/canary"

# ---- what the agent writes -----------------------------------------------------------------------------------------

HAMI_REGISTER: Final = "hami.io/node-nvidia-register"
HAMI_SCORES: Final = "hami.io/node-nvidia-score"

# ---- what is written on nodes of HAMi's plugin ---------------------------------------------------------------------

HAMI_HANDSHAKE: Final = "hami.io/node-handshake"
"""Written by HAMi's scheduler, read by ours."""
HAMI_LOCK: Final = "hami.io/mutex.lock"
"""Written by the scheduler that binds a pod, removed by the plugin."""

# ---- what an administrator writes on a node ------------------------------------------------------------------------

CORDON: Final = "hami.io/device-cordon"
ALLOCATOR_LABEL: Final = "gpu.scheduling/allocator"
"""A label: `dra` if Kubernetes is to allocate the node's cards by dynamic resource allocation (docs/dra.md)."""
SHARE_MODE_PREFIX: Final = "sharemode.gpu.bytetrade.io/"
"""Followed by the UUID of a card: how the pods of applications share it."""

GANG_KEYS: Final = frozenset(
    {
        *(GANG, GANG_BY, GANG_MIN_MEMBERS, GANG_TIMEOUT, GANG_BLOCK),
        *(KOORDINATOR_GANG, KOORDINATOR_SIZE, KOORDINATOR_TIMEOUT, KUEUE_SIZE),
        *(TENSOR_FUSION_GANG, TENSOR_FUSION_GROUP, TENSOR_FUSION_REQUIRED, TENSOR_FUSION_MIN_MEMBERS),
        TENSOR_FUSION_TIMEOUT,
    }
)
"""The annotations of pods by which they belong to gangs."""
SHORT_KEYS: Final = GANG_KEYS | {
    *(CLAIM, CONSUME_POLICY, PREEMPTION_PROTECTION, EVICTABLE, ISOLATION, INDEX, HOST_PORT),
}
"""The annotations of pods whose value is a name, a word, a number or a duration."""
POD_KEYS: Final = (
    CONSTRAINT_KEYS
    | SHORT_KEYS
    | {ALLOCATION, CHARGED_TO, HAMI_ALLOCATED, HAMI_MIG, HAMI_BIND_PHASE, LIMITS, RESIZE, RESIZED}
)
"""The annotations of pods that the scheduler reads."""
NODE_KEYS: Final = frozenset({HAMI_REGISTER, HAMI_SCORES, HAMI_HANDSHAKE, HAMI_LOCK, CORDON})
"""The annotations of nodes that the scheduler reads."""

OUTPUT_PREFIXES: Final = ("hami.io/vgpu-", "hami.io/bind-")
"""HAMi's keys that only a scheduler writes."""

DELIVERY_KEY: Final = "nvidia.cdi.k8s.io"
DELIVERY_DOMAINS: Final = frozenset(
    {
        *(DELIVERY_KEY, "cdi.k8s.io", "io.kubernetes.cri-o.Devices"),
        *(f"{kind}.{domain}" for kind in ("devices", "cdi-devices") for domain in ("nri.io", "noderesource.dev")),
    }
)
DELIVERY_PREFIX: Final = "nvidia.com/container."
"""Keys, alone or before a slash, by which a container runtime or a plugin of it gives a pod's containers any card.

`devices.nri.io` and its relatives are those of the plugin device-injector (github.com/containerd/nri, which later moved
to `noderesource.dev`), `io.kubernetes.cri-o.Devices` is CRI-O's.
"""

_DOMAINS: Final = frozenset((API_GROUP, "hami.io", "nvidia.com", "tensor-fusion.ai", BINDING_GROUP))


def environment_key(variable: str, container: str) -> str:
    """Return the annotation key that carries `variable` of `container`.

    The variable is the prefix of the key and the container its name part. Container names and the name parts of
    annotation keys both have at most 63 characters, so every container has a valid, readable, unique key.
    """
    return f"{variable}.{ENVIRONMENT_DOMAIN}/{container}"


def delivery_key(container: str) -> str:
    """Return the annotation key by which the NRI plugin of NVIDIA's GPU Operator gives `container` its cards."""
    return f"{DELIVERY_KEY}/container.{container}"


def fraction_key(container: str, what: str) -> str:
    """Return the annotation key by which kai-gpu-fractioning reads `what` a container has of its cards."""
    return f"{DELIVERY_PREFIX}{container}.{what}"


def heartbeat_lease(node: str) -> str:
    """Return the name of the Lease in the system namespace that the agent of `node` renews.

    A node's name can be as long as a Lease's. A name too long for the prefix ends in a hash.
    """
    return _shortened(HEARTBEAT_PREFIX + node, MAX_NAME_LENGTH)


def legacy_heartbeat_lease(node: str) -> str:
    """Return the name of the Lease that an agent of `node` of an early version renews."""
    return _shortened(LEGACY_HEARTBEAT_PREFIX + node, MAX_NAME_LENGTH, hashed=node)


def device_lease(node: str, index: int, *, instance: str = "") -> str:
    """Return the name of the Lease in the system namespace that says which pod has a card of `node`.

    `index` is that of the card on its node. `instance` identifies a MIG instance of the card and contains no dash, so
    that the last dash ends the name of the node.
    """
    suffix = f"-{index}.{instance}" if instance else f"-{index}"
    return _shortened(f"{DEVICE_PREFIX}{node}{suffix}", MAX_NAME_LENGTH)


def resource_slice(node: str) -> str:
    """Return the name of the ResourceSlice of `node`."""
    return _shortened(f"{DRA_DRIVER}-{node}", MAX_NAME_LENGTH)


def pod_label(pod: str) -> str:
    """Return the value of `POD_LABEL` for a pod of this name."""
    return _shortened(pod, _MAX_LABEL_LENGTH)


def _shortened(name: str, length: int, *, hashed: str = "") -> str:
    """Return `name`, or if it is longer than `length` its beginning and a hash: of `hashed`, or else of all of it."""
    if len(name) <= length:
        return name
    suffix = "-" + hashlib.sha256((hashed or name).encode()).hexdigest()[:16]
    return name[: length - len(suffix)].rstrip("-.") + suffix


def is_environment_key(key: str) -> bool:
    """Whether a container's environment can refer to the annotation `key`."""
    return key.partition("/")[0].endswith(f".{ENVIRONMENT_DOMAIN}")


def is_relevant_key(key: str) -> bool:
    """Whether the annotation `key` of a pod belongs to a domain that tranche reads."""
    return key.partition("/")[0] in _DOMAINS or is_environment_key(key)


def is_output_key(key: str) -> bool:
    """Whether only the scheduler may write the annotation `key`, because the ledger or a kubelet trusts it."""
    ours = (ALLOCATION, ALLOCATED, LEADER, CHARGED_TO, RESIZED)
    return key in ours or key.startswith(OUTPUT_PREFIXES) or is_environment_key(key)


def is_delivery_key(key: str) -> bool:
    """Whether the annotation `key` requests cards from a container runtime or a plugin of it."""
    return key.partition("/")[0] in DELIVERY_DOMAINS or key.startswith(DELIVERY_PREFIX)
