"""The environment that passes a container's cards to NVIDIA's stack, and its limits to what enforces them.

A pod's environment is immutable and written before its cards are known. Admission therefore writes references: each
variable reads an annotation that the scheduler writes together with the Binding. `references` returns the former,
`annotations` the latter, both from the same names. A missing annotation results in an empty `CUDA_VISIBLE_DEVICES`,
which hides every GPU: the environment fails closed.

How cards reach a container differs by node (`allocation.delivery`), and only in values that come with the Binding.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from allocation import names
from allocation.allocation import Allocation, CardShare
from allocation.claim import VisibleAs
from allocation.delivery import BY_THE_AGENT, DEFAULT, Delivery
from allocation.isolation import Isolation
from allocation.request import PodRequest
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
_CORE_LIMIT = "CUDA_DEVICE_SM_LIMIT"
_WHOLE_PERCENT = 100
CORE_POLICY = "GPU_CORE_UTILIZATION_POLICY"
_PRIORITY = "CUDA_TASK_PRIORITY"

ALWAYS_REFERENCED = (NVIDIA_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES, _MEMORY_LIMIT, _CORE_LIMIT)
"""The variables that are references in every container with cards, whatever their number."""

NRI_PLUGIN = "tranche"
"""The name of the agent among the plugins of a container runtime."""
REQUIRED_PLUGINS = f'["{NRI_PLUGIN}"]'
"""The annotation `names.REQUIRED_PLUGINS` of a pod whose cards only the agent's plugin delivers."""

_GPU_MEMORY_REQUEST = "NVIDIA_GPU_MEMORY_REQUEST"
_GPU_MEMORY_LIMIT = "NVIDIA_GPU_MEMORY_LIMIT"
_MIB = "Mi"
"""The unit of memory in annotations for kai-gpu-fractioning, which sets variables in MiB without a unit."""
_PORTION: Final = re.compile(r"1|0\.[0-9]{1,2}")
"""The compute of a container in an annotation for it, of which it sets a percentage: a part of each card."""
_MPS_MEMORY_LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_MPS_THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_OF_ISOLATION: Final[Mapping[Isolation, tuple[str, ...]]] = {
    Isolation.CUDA: (_GPU_MEMORY_REQUEST, _GPU_MEMORY_LIMIT),
    Isolation.MPS: (_MPS_MEMORY_LIMIT, _MPS_THREADS),
}
"""The variables of pods that chose an isolation, and of no others: NVIDIA's toolkit refuses to start a container with
its own on a node that cannot enforce them, and MPS acts on its own wherever a daemon runs."""
MPS_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
"""Where a program finds the daemon of MPS; set by the agent's plugin alone, which mounts the pipes."""
COUNTS = "CUDA_DEVICE_MEMORY_SHARED_CACHE"
"""The file in which HAMi-core adds up what the processes of a container use; set by the agent's plugin alone."""
_BY_ORDINAL: Final = frozenset({Isolation.HAMI_CORE, Isolation.MPS})
"""The isolations that know a card by its position among those of the container, as the driver numbers them."""


def references(
    container: str, cards: int, *, fabric: Iterable[str] = (), isolation: Isolation = Isolation.NONE
) -> dict[str, str]:
    """Return the annotation key that each variable of a container with `cards` cards refers to.

    `fabric` are the variables of the node's fabric that the container has (`allocation.fabric.variables`).
    """
    variables = (
        NVIDIA_VISIBLE_DEVICES,
        CUDA_VISIBLE_DEVICES,
        _MEMORY_LIMIT,
        *(f"{_MEMORY_LIMIT}_{position}" for position in range(cards)),
        _CORE_LIMIT,
        *of_isolation(isolation),
        *fabric,
    )
    return {name: names.environment_key(_key_word(name), container) for name in variables}


def of_isolation(isolation: Isolation) -> tuple[str, ...]:
    """Return the variables that are in pods of this isolation only."""
    return _OF_ISOLATION.get(isolation, ())


def limiting(isolation: Isolation) -> tuple[str, ...]:
    """Return the variables without a value of which an isolation would not limit a container."""
    return (_MEMORY_LIMIT,) if isolation is Isolation.HAMI_CORE else of_isolation(isolation)


def constants(*, priority: int | None, core_policy: CorePolicy) -> dict[str, str]:
    """Return the variables of a GPU container that are known at admission: how HAMi-core limits its kernels.

    Without a requested priority the user may set the variable, as in HAMi.
    """
    variables = {}
    if priority is not None:
        variables[_PRIORITY] = str(priority)
    if core_policy != "default":
        variables[CORE_POLICY] = core_policy
    return variables


def values(
    shares: Sequence[CardShare],
    delivery: Delivery = DEFAULT,
    *,
    visible_as: VisibleAs = "UUID",
    isolation: Isolation = Isolation.NONE,
) -> dict[str, str]:
    """Return the variables of a container with `shares`, in the order in which it sees the cards.

    CUDA identifies cards by bare UUIDs, whatever the delivery; as an index, by the position among the cards that the
    runtime gives the container, because to the container the cards of the node have no other.

    Memory limits have the form that HAMi-core reads: a decimal number of MiB with suffix `m`, no leading zeros. The
    limit without an index is the fallback for a card whose own limit the container does not refer to, because it is
    unexpected, or one more than the container requested; so it is the smallest. To HAMi-core, 0 means no limit, of
    memory and of cores alike. It reads `CUDA_VISIBLE_DEVICES` as numbers and nothing else.
    """
    if isolation is Isolation.HAMI_CORE:
        visible_as = "Index"
    shares = _ordered(shares, isolation)
    uuids = ",".join(share.uuid for share in shares)
    visible = _toolkit_names(shares)
    if delivery == "env":
        visible = uuids
    elif delivery in BY_THE_AGENT or (delivery == "nvfractions" and _fraction(shares) is not None):
        visible = NO_DEVICES
    return {
        NVIDIA_VISIBLE_DEVICES: visible,
        CUDA_VISIBLE_DEVICES: uuids if visible_as == "UUID" else ",".join(map(str, range(len(shares)))),
        **_limits(shares, isolation),
    }


def _ordered(shares: Sequence[CardShare], isolation: Isolation) -> Sequence[CardShare]:
    """Return shares in the order in which their limits are numbered."""
    return sorted(shares, key=lambda share: share.index) if isolation in _BY_ORDINAL else shares


def _limits(shares: Sequence[CardShare], isolation: Isolation) -> dict[str, str]:
    shares = [share.at_limits() for share in shares]
    limits = [share.memory_mib for share in shares if share.memory_mib]
    return {
        _MEMORY_LIMIT: f"{min(limits, default=0)}m",
        **{f"{_MEMORY_LIMIT}_{position}": f"{share.memory_mib}m" for position, share in enumerate(shares)},
        _CORE_LIMIT: str(_percent(shares)),
        **_limits_of(shares, isolation),
    }


def _limits_of(shares: Sequence[CardShare], isolation: Isolation) -> dict[str, str]:
    """Return the variables that one isolation alone reads.

    NVIDIA's toolkit applies one limit, in MiB, to each card of a container: the smallest, so that no other container's
    share is used. MPS takes a limit for each card, and no percentage of 0.
    """
    if isolation is Isolation.CUDA:
        smallest = str(min(share.memory_mib for share in shares))
        return {_GPU_MEMORY_REQUEST: smallest, _GPU_MEMORY_LIMIT: smallest}
    if isolation is Isolation.MPS:
        limits = ",".join(f"{ordinal}={share.memory_mib}M" for ordinal, share in enumerate(shares))
        return {_MPS_MEMORY_LIMIT: limits, _MPS_THREADS: str(_percent(shares) or _WHOLE_PERCENT)}
    return {}


def _percent(shares: Sequence[CardShare]) -> int:
    """Return the compute that a container may use of each card, rounded up."""
    return min(share.cores_percent for share in shares)


def annotations(
    allocation: Allocation,
    delivery: Delivery = DEFAULT,
    *,
    visible_as: VisibleAs = "UUID",
    fabric: Mapping[str, str] = MappingProxyType({}),
    isolation: Isolation = Isolation.NONE,
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
        variables = values(shares, delivery, visible_as=visible_as, isolation=isolation)
        for name, value in {**variables, **fabric}.items():
            annotations[names.environment_key(_key_word(name), container)] = value
        if delivery == "nvidia-nri":
            annotations[names.delivery_key(container)] = ",".join(host_names(shares))
        elif delivery == "nvfractions" and (fraction := _fraction(shares)) is not None:
            keys, (request, limit) = fraction_references(container), fraction
            annotations |= {
                keys[NVIDIA_VISIBLE_DEVICES]: _toolkit_names(shares),
                keys[_GPU_MEMORY_REQUEST]: f"{request}{_MIB}",
                keys[_GPU_MEMORY_LIMIT]: f"{limit}{_MIB}",
            }
            if percent := _percent([share.at_limits() for share in shares]):
                annotations[keys[_MPS_THREADS]] = f"{min(percent, _WHOLE_PERCENT) / _WHOLE_PERCENT:g}"
    if delivery == "nri":
        annotations[names.REQUIRED_PLUGINS] = REQUIRED_PLUGINS
    return annotations


def fraction_references(container: str) -> dict[str, str]:
    """Return the annotation key from which kai-gpu-fractioning sets each variable of a container."""
    return {
        NVIDIA_VISIBLE_DEVICES: names.fraction_key(container, "gpus.devices"),
        _GPU_MEMORY_REQUEST: names.fraction_key(container, "gpu-memory.request"),
        _GPU_MEMORY_LIMIT: names.fraction_key(container, "gpu-memory.limit"),
        _MPS_THREADS: names.fraction_key(container, "gpu-compute.portion"),
    }


def has_fractions(annotations: Mapping[str, str]) -> bool:
    """Whether kai-gpu-fractioning limits containers of a bound pod."""
    return any(key.startswith(names.DELIVERY_PREFIX) for key in annotations)


def fraction_variables(annotations: Mapping[str, str], container: str) -> dict[str, str]:
    """Return the variables that kai-gpu-fractioning sets in a container of a bound pod."""
    return {
        name: _percentage(annotations[key]) if name == _MPS_THREADS else annotations[key].removesuffix(_MIB)
        for name, key in fraction_references(container).items()
        if key in annotations
    }


def _percentage(portion: str) -> str:
    """Return the percentage of a portion of a card that this module has written; another text as it is."""
    return str(round(float(portion) * _WHOLE_PERCENT)) if _PORTION.fullmatch(portion) else portion


def _fraction(shares: Sequence[CardShare]) -> tuple[int, int] | None:
    """Return the MiB of each card that kai-gpu-fractioning reserves for a container, and those to which it limits it.

    None if it has nothing to limit, such as MIG instances: then it does not act on the container. It knows one amount
    for all cards of a container, so it is the smallest.
    """
    limits = [share.at_limits().memory_mib for share in shares]
    if not any(limits) or any(share.parent for share in shares):
        return None
    limit = min(filter(None, limits))
    return min([limit, *(share.memory_mib for share in shares if share.memory_mib)]), limit


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
            for name, value in _limits(_ordered(shares, request.isolation), request.isolation).items()
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


def is_left_to_device_plugin(annotations: Mapping[str, str], container: str) -> bool:
    """Whether only the device plugin of its node gives a container of a bound pod its cards."""
    key = names.environment_key(_key_word(NVIDIA_VISIBLE_DEVICES), container)
    others = (names.REQUIRED_PLUGINS, *fraction_references(container).values())
    return annotations.get(key) == NO_DEVICES and annotations.keys().isdisjoint(others)


def host_names(shares: Sequence[CardShare]) -> tuple[str, ...]:
    """Return the cards as CDI names of the specification that NVIDIA's software writes on a node."""
    return _qualified(_HOST_KIND, shares)


def host_name(uuid: str) -> str:
    """Return one card as such a name."""
    return f"{_HOST_KIND}={uuid}"


def _toolkit_names(shares: Sequence[CardShare]) -> str:
    """Return the cards as a value of `NVIDIA_VISIBLE_DEVICES` that NVIDIA's runtime resolves itself."""
    return ",".join(_qualified(_TOOLKIT_KIND, shares))


def _qualified(kind: str, shares: Sequence[CardShare]) -> tuple[str, ...]:
    """Return the cards as qualified CDI names; every entry of a list needs the kind."""
    return tuple(f"{kind}={share.uuid}" for share in shares)


def _key_word(variable: str) -> str:
    return variable.lower().replace("_", "-")
