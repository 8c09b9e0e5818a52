"""What a container is told about its cards.

A pod's environment is immutable and is written before its cards are known, so admission writes references: each
variable reads an annotation that the scheduler writes together with the node. `references` answers the former,
`annotations` the latter; they agree because both walk the same table. An annotation that is missing gives an empty
`CUDA_VISIBLE_DEVICES`, which hides every GPU: it fails closed.
"""

from collections.abc import Mapping, Sequence

from allocation import hami, names, record
from allocation.allocation import Allocation, CardShare
from allocation.request import MILLI_PER_PERCENT, PodRequest
from allocation.settings import CorePolicy

NVIDIA_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
NO_DEVICES = "void"
"""Of `NVIDIA_VISIBLE_DEVICES`: the NVIDIA runtime leaves the container alone, even if its image says `all`."""

_MEMORY_LIMIT = "CUDA_DEVICE_MEMORY_LIMIT"
_SWITCH = "CUDA_DISABLE_CONTROL"  # it switches HAMi-core off, so nobody sets it
_CORE_POLICY = "GPU_CORE_UTILIZATION_POLICY"
_PRIORITY = "CUDA_TASK_PRIORITY"
OWNED = frozenset(
    (NVIDIA_VISIBLE_DEVICES, "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_SM_LIMIT", _MEMORY_LIMIT, _CORE_POLICY, _SWITCH)
)
"""The variables that are ours to set in a managed pod, but for the memory limits of single cards."""


def is_owned(name: str) -> bool:
    """Whether the environment variable `name` is ours to set in a managed pod."""
    return name in OWNED or name.startswith(f"{_MEMORY_LIMIT}_")


def references(container: str, cards: int) -> dict[str, str]:
    """Answer the annotation key that each variable of a container with `cards` cards refers to."""
    variables = (
        NVIDIA_VISIBLE_DEVICES,
        "CUDA_VISIBLE_DEVICES",
        _MEMORY_LIMIT,
        *(f"{_MEMORY_LIMIT}_{position}" for position in range(cards)),
        "CUDA_DEVICE_SM_LIMIT",
    )
    return {name: names.environment_key(_key_word(name), container) for name in variables}


def constants(*, priority: int | None, core_policy: CorePolicy) -> dict[str, str]:
    """Answer the variables of a GPU container that are known at admission: how HAMi-core shall limit its kernels.

    A priority that nobody asked for is the user's own to set, as in HAMi.
    """
    answer = {}
    if priority is not None:
        answer[_PRIORITY] = str(priority)
    if core_policy != "default":
        answer[_CORE_POLICY] = core_policy
    return answer


def values(shares: Sequence[CardShare]) -> dict[str, str]:
    """Answer the variables of a container that was given `shares`, in the order in which it sees the cards.

    Memory limits are written as HAMi-core reads them: a decimal number of MiB with suffix `m`, no leading zero. The
    limit without index is a net for a card that was not foreseen, so it is the smallest. 0 means no limit there, for
    memory and for cores alike.
    """
    uuids = ",".join(share.uuid for share in shares)
    return {
        NVIDIA_VISIBLE_DEVICES: uuids,
        "CUDA_VISIBLE_DEVICES": uuids,
        _MEMORY_LIMIT: f"{min(share.memory_mib for share in shares)}m",
        **{f"{_MEMORY_LIMIT}_{position}": f"{share.memory_mib}m" for position, share in enumerate(shares)},
        "CUDA_DEVICE_SM_LIMIT": str(-(-min(share.cores for share in shares) // MILLI_PER_PERCENT)),
    }


def annotations(allocation: Allocation) -> dict[str, str]:
    """Answer every annotation that carries `allocation` and that the pod's environment refers to."""
    answer = {
        names.ALLOCATION: record.encode(allocation),
        names.ALLOCATED: ",".join(str(index) for index in _indexes(allocation)),
    }
    for container, shares in allocation.containers.items():
        for name, value in values(shares).items():
            answer[names.environment_key(_key_word(name), container)] = value
    return answer


def hami_annotations(allocation: Allocation, request: PodRequest, *, unix_seconds: int) -> dict[str, str]:
    """Answer the annotations by which HAMi's own tools see the pod."""
    return {
        names.HAMI_NODE: allocation.node,
        names.HAMI_TIME: str(unix_seconds),
        names.HAMI_ALLOCATED: hami.allocation_string(allocation, request),
    }


def resolve(references: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, str]:
    """Answer the environment as the kubelet resolves it: a missing annotation is an empty string."""
    return {name: annotations.get(key, "") for name, key in references.items()}


def _key_word(variable: str) -> str:
    return variable.lower().replace("_", "-")


def _indexes(allocation: Allocation) -> list[int]:
    """List the device indexes of the whole pod, each once, in the order of its containers."""
    return list(dict.fromkeys(share.index for shares in allocation.containers.values() for share in shares))
