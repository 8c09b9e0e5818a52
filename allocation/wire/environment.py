"""The environment that passes a container's cards to NVIDIA's stack and to HAMi-core.

A pod's environment is immutable and written before its cards are known. Admission therefore writes references: each
variable reads an annotation that the scheduler writes together with the Binding. `references` returns the former,
`annotations` the latter, both from the same names. A missing annotation results in an empty `CUDA_VISIBLE_DEVICES`,
which hides every GPU: the environment fails closed.

How cards reach a container differs by node (`allocation.delivery`), and only in values that come with the Binding.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from allocation import names
from allocation.allocation import Allocation, CardShare
from allocation.claim import VisibleAs
from allocation.delivery import DEFAULT, Delivery
from allocation.request import MILLI_PER_PERCENT, PodRequest
from allocation.settings import CorePolicy
from allocation.wire import hami, mig_record, record
from allocation.wire.mig_record import MigAllocation

NVIDIA_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
NO_DEVICES = "void"
"""A value of `NVIDIA_VISIBLE_DEVICES`: the NVIDIA runtime leaves the container alone, even if its image says `all`."""

_TOOLKIT_KIND = "runtime.nvidia.com/gpu"
"""The CDI kind for which NVIDIA's runtime makes a specification when it meets a name of it."""
_HOST_KIND = "nvidia.com/gpu"
"""The CDI kind of the specification that NVIDIA's software writes on a node, which NRI plugins refer to."""

_MEMORY_LIMIT = "CUDA_DEVICE_MEMORY_LIMIT"
_CORE_POLICY = "GPU_CORE_UTILIZATION_POLICY"
_PRIORITY = "CUDA_TASK_PRIORITY"


def references(container: str, cards: int, *, fabric: Iterable[str] = ()) -> dict[str, str]:
    """Return the annotation key that each variable of a container with `cards` cards refers to.

    `fabric` are the variables of the node's fabric that the container has (`allocation.fabric.variables`).
    """
    variables = (
        NVIDIA_VISIBLE_DEVICES,
        CUDA_VISIBLE_DEVICES,
        _MEMORY_LIMIT,
        *(f"{_MEMORY_LIMIT}_{position}" for position in range(cards)),
        "CUDA_DEVICE_SM_LIMIT",
        *fabric,
    )
    return {name: names.environment_key(_key_word(name), container) for name in variables}


def constants(*, priority: int | None, core_policy: CorePolicy) -> dict[str, str]:
    """Return the variables of a GPU container that are known at admission: how HAMi-core limits its kernels.

    Without a requested priority the user may set the variable, as in HAMi.
    """
    variables = {}
    if priority is not None:
        variables[_PRIORITY] = str(priority)
    if core_policy != "default":
        variables[_CORE_POLICY] = core_policy
    return variables


def values(
    shares: Sequence[CardShare], delivery: Delivery = DEFAULT, *, visible_as: VisibleAs = "UUID"
) -> dict[str, str]:
    """Return the variables of a container with `shares`, in the order in which it sees the cards.

    CUDA identifies cards by bare UUIDs, whatever the delivery; as an index, by the position among the cards that the
    runtime gives the container, because to the container the cards of the node have no other.

    Memory limits have the form that HAMi-core reads: a decimal number of MiB with suffix `m`, no leading zeros. The
    limit without an index is the fallback for a card whose own limit the container does not refer to, because it is
    unexpected, or one more than the container requested; so it is the smallest. To HAMi-core, 0 means no limit, of
    memory and of cores alike.
    """
    uuids = ",".join(share.uuid for share in shares)
    return {
        NVIDIA_VISIBLE_DEVICES: uuids if delivery == "env" else _qualified(_TOOLKIT_KIND, shares),
        CUDA_VISIBLE_DEVICES: uuids if visible_as == "UUID" else ",".join(map(str, range(len(shares)))),
        **_limits(shares),
    }


def _limits(shares: Sequence[CardShare]) -> dict[str, str]:
    limits = [share.memory_mib for share in shares if share.memory_mib]
    return {
        _MEMORY_LIMIT: f"{min(limits, default=0)}m",
        **{f"{_MEMORY_LIMIT}_{position}": f"{share.memory_mib}m" for position, share in enumerate(shares)},
        "CUDA_DEVICE_SM_LIMIT": str(-(-min(share.cores for share in shares) // MILLI_PER_PERCENT)),
    }


def annotations(
    allocation: Allocation,
    delivery: Delivery = DEFAULT,
    *,
    visible_as: VisibleAs = "UUID",
    fabric: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the annotation that carries `allocation`, and all that deliver it to the containers of the pod.

    `fabric` are the variables of the node's fabric for the pod (`allocation.fabric.environment`), equal for each
    container.
    """
    annotations = {
        names.ALLOCATION: record.encode(allocation),
        names.ALLOCATED: ",".join(str(index) for index in allocation.indexes()),
    }
    for container, shares in allocation.containers.items():
        for name, value in {**values(shares, delivery, visible_as=visible_as), **fabric}.items():
            annotations[names.environment_key(_key_word(name), container)] = value
        if delivery == "nvidia-nri":
            annotations[names.delivery_key(container)] = _qualified(_HOST_KIND, shares)
    return annotations


def resize_annotations(allocation: Allocation, request: PodRequest) -> dict[str, str]:
    """Return the annotations that carry another size of the same cards to a pod that runs.

    Its containers have them from their next start.
    """
    return {
        names.ALLOCATION: record.encode(allocation),
        names.HAMI_ALLOCATED: hami.allocation_string(allocation, request),
        **{
            names.environment_key(_key_word(name), container): value
            for container, shares in allocation.containers.items()
            if shares
            for name, value in _limits(shares).items()
        },
    }


def hami_annotations(
    allocation: Allocation, request: PodRequest, *, unix_seconds: int, instances: Sequence[MigAllocation] = ()
) -> dict[str, str]:
    """Return the annotations that HAMi's own tools read of a pod; `instances` are its MIG instances."""
    mig = {names.HAMI_MIG: mig_record.encode(instances)} if instances else {}
    return {
        **mig,
        names.HAMI_NODE: allocation.node,
        names.HAMI_TIME: str(unix_seconds),
        names.HAMI_ALLOCATED: hami.allocation_string(allocation, request),
    }


def resolve(references: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the environment as the kubelet resolves it: a missing annotation becomes an empty string."""
    return {name: annotations.get(key, "") for name, key in references.items()}


def _qualified(kind: str, shares: Sequence[CardShare]) -> str:
    """Return the cards as qualified CDI names; every entry of a list needs the kind."""
    return ",".join(f"{kind}={share.uuid}" for share in shares)


def _key_word(variable: str) -> str:
    return variable.lower().replace("_", "-")
