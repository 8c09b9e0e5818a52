"""Every name that more than one process, or a user, sees. docs/interfaces.md is the prose of this file."""

import hashlib
from typing import Final

SCHEDULER_NAME: Final = "tranche"
SYSTEM_NAMESPACE: Final = "tranche-system"
API_GROUP: Final = "gpu.scheduling"
API_VERSION: Final = "v1"

LONGEST_OBJECT_NAME: Final = 253
HEARTBEAT_PREFIX: Final = "gpu-"

# ---- what a user may set -------------------------------------------------------------------------------------------

INJECTION_LABEL: Final = "gpu.scheduling/injection"
"""On a namespace or a pod: `enabled` or `disabled`; the pod's word wins."""
HAMI_WEBHOOK_LABEL: Final = "hami.io/webhook"
"""On a pod: `ignore` opts it out, as in HAMi."""
NODE_POLICY: Final = "hami.io/node-scheduler-policy"
CARD_POLICY: Final = "hami.io/gpu-scheduler-policy"
WEIGHTS: Final = "hami.io/device-scoring-weights"
USE_UUIDS: Final = "nvidia.com/use-gpuuuid"
AVOID_UUIDS: Final = "nvidia.com/nouse-gpuuuid"
USE_TYPES: Final = "nvidia.com/use-gputype"
AVOID_TYPES: Final = "nvidia.com/nouse-gputype"
NUMA_BIND: Final = "nvidia.com/numa-bind"
MODE: Final = "nvidia.com/vgpu-mode"

# ---- what only the scheduler writes (or, for a static allocation, a trusted identity) ------------------------------

ALLOCATION: Final = "gpu.scheduling/allocation"
ALLOCATED: Final = "gpu.scheduling/allocated"
LEADER: Final = "gpu.scheduling/leader"
FENCED_LABEL: Final = "gpu.scheduling/fenced"
HAMI_NODE: Final = "hami.io/vgpu-node"
HAMI_TIME: Final = "hami.io/vgpu-time"
HAMI_ALLOCATED: Final = "hami.io/vgpu-devices-allocated"
HAMI_MIG: Final = "hami.io/vgpu-mig-allocations"
HAMI_TO_ALLOCATE: Final = "hami.io/vgpu-devices-to-allocate"
HAMI_BIND_PHASE: Final = "hami.io/bind-phase"
HAMI_BIND_TIME: Final = "hami.io/bind-time"

ENVIRONMENT_DOMAIN: Final = "gpu.scheduling"

# ---- what certs and webhook say to each other ----------------------------------------------------------------------

CANARY: Final = "gpu.scheduling/canary"

# ---- what the agent writes -----------------------------------------------------------------------------------------

HAMI_REGISTER: Final = "hami.io/node-nvidia-register"
HAMI_SCORES: Final = "hami.io/node-nvidia-score"

# ---- what is written on nodes of HAMi's plugin ---------------------------------------------------------------------

HAMI_HANDSHAKE: Final = "hami.io/node-handshake"
"""Written by HAMi's scheduler, read by us."""
HAMI_LOCK: Final = "hami.io/mutex.lock"
"""Written by who binds, removed by the plugin."""

# ---- what an administrator writes on a node ------------------------------------------------------------------------

CORDON: Final = "hami.io/device-cordon"

OUTPUT_PREFIXES: Final = ("hami.io/vgpu-", "hami.io/bind-")
"""HAMi's keys that only a scheduler writes."""

_DOMAINS: Final = frozenset((API_GROUP, "hami.io", "nvidia.com"))


def environment_key(variable: str, container: str) -> str:
    """Answer the annotation key that carries `variable` of `container`.

    The variable is the key's prefix and the container its name part: both a container name and the name part of an
    annotation key have at most 63 characters, so every container has a valid, readable, unique key.
    """
    return f"{variable}.{ENVIRONMENT_DOMAIN}/{container}"


def heartbeat_lease(node: str) -> str:
    """Answer the name of the Lease in the system namespace that the agent of `node` renews.

    A node's name may be as long as a Lease's, so one that leaves no room for the prefix ends in a hash of all of it.
    """
    name = HEARTBEAT_PREFIX + node
    if len(name) <= LONGEST_OBJECT_NAME:
        return name
    suffix = "-" + hashlib.sha256(node.encode()).hexdigest()[:16]
    return name[: LONGEST_OBJECT_NAME - len(suffix)].rstrip("-.") + suffix


def is_environment_key(key: str) -> bool:
    """Whether an annotation is one that a container's environment refers to."""
    return key.partition("/")[0].endswith(f".{ENVIRONMENT_DOMAIN}")


def is_of_ours(key: str) -> bool:
    """Whether a pod's annotation `key` can be one of those that are read here; anybody else's is not."""
    return key.partition("/")[0] in _DOMAINS or is_environment_key(key)


def is_output_key(key: str) -> bool:
    """Whether only the scheduler may write the annotation `key`, because the ledger or a kubelet believes it."""
    return key in (ALLOCATION, ALLOCATED, LEADER) or key.startswith(OUTPUT_PREFIXES) or is_environment_key(key)
