"""A GpuClaim: how many cards a pod gets, and what it gets of each (docs/claims.md).

A claim qualifies the GPU request in a pod's immutable spec, which admission writes there, and never is a request by
itself. Its cards belong to the pod: all GPU containers see the same cards, and each card is charged once.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import msgspec

from allocation import quantity
from allocation.allocation import Allocation, ClaimMark, Exclusivity
from allocation.errors import AllocationError, InvalidFieldError
from allocation.fabric import CuFileDemand
from allocation.pod import Container, Containers
from allocation.quantity import Quantity
from allocation.request import MILLI_PER_PERCENT, WHOLE_CARD, ContainerRequest, Kind, PodRequest
from allocation.settings import AllocationSettings
from allocation.topology.demand import DevicePolicy, TopologyMode

VisibleAs = Literal["Index", "UUID"]


class ClaimDevices(
    msgspec.Struct,
    frozen=True,
    rename={"memory_mib": "memoryMiB", "visible_as": "visibleAs", "prefer_ids": "preferIds"},
):
    """`spec.devices` of a claim.

    Attributes:
        count: cards.
        exclusivity: whether the pod has its cards alone, shares them, or gets MIG instances.
        visible_as: how `CUDA_VISIBLE_DEVICES` names the cards: by their position among the container's, or by UUID.
        memory_mib: per card; None for all memory of an exclusive card, and for no limit of a shared one.
        cores: percent of each shared card; None reserves none.
        profile: of the MIG instances, such as `1g.10gb`; empty accepts all.
        policy: which cards of a node are preferred.
        prefer_ids: the indexes of the cards that policy preferIds prefers.
    """

    count: int
    exclusivity: Exclusivity = "Exclusive"
    visible_as: VisibleAs = "Index"
    memory_mib: int | None = None
    cores: int | None = None
    profile: str = ""
    policy: DevicePolicy = "contiguous"
    prefer_ids: tuple[int, ...] = ()


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] = {}


class ClaimTopology(
    msgspec.Struct, frozen=True, rename={"min_bandwidth_gbps": "minBandwidthGBps", "max_tier": "maxTier"}
):
    """`spec.topology`: how the cards should be connected (`allocation.topology.demand.TopologyDemand`)."""

    mode: TopologyMode = "Preferred"
    min_bandwidth_gbps: int = 0
    max_tier: int | None = None


class ClaimNetwork(msgspec.Struct, frozen=True, rename="camel"):
    """`spec.network`: the adapters of the node (`allocation.fabric.FabricDemand`)."""

    rdma_required: bool = False
    min_ports: int = 0
    preferred_hcas: tuple[str, ...] = ()


class ClaimStorage(msgspec.Struct, frozen=True, rename={"cu_file": "cuFile"}):
    """`spec.storage`: whether the node must or should have GPUDirect Storage."""

    cu_file: CuFileDemand | None = None


class ClaimSpec(msgspec.Struct, frozen=True, rename={"gang_ref": "gangRef"}):
    """The `spec` of a claim, which never changes.

    Attributes:
        devices: the cards.
        selector: the labels that the node must have, in `match_labels`.
        topology: how the cards should be connected.
        network: the adapters that the node should have.
        storage: the storage that the node should reach.
        gang_ref: the group of pods that belong together; empty for none.
    """

    devices: ClaimDevices
    selector: _Selector = _Selector()
    topology: ClaimTopology = ClaimTopology()
    network: ClaimNetwork = ClaimNetwork()
    storage: ClaimStorage = ClaimStorage()
    gang_ref: str = ""

    @property
    def node_labels(self) -> Mapping[str, str]:
        """The labels that the node must have."""
        return self.selector.match_labels


FindClaim = Callable[[str], ClaimSpec | None]
"""Returns a GpuClaim of a pod's namespace by its name, or None if it does not exist."""


class ClaimRequest(msgspec.Struct, frozen=True):
    """What a pod requests by a claim.

    Attributes:
        mark: the claim, as the allocation names it.
        placed: the request that is placed, of one container that stands for all GPU containers.
        devices: what the claim gives.
    """

    mark: ClaimMark
    placed: PodRequest
    devices: ClaimDevices

    def spread(self, placed: Allocation, request: PodRequest) -> Allocation:
        """Return the allocation of the pod with `request`: each of its GPU containers has the `placed` cards."""
        (shares,) = placed.containers.values()
        containers = {container.name: shares for container in request.gpu_containers}
        return Allocation(placed.node, containers, self.mark, placed.isolation)


def resources(devices: ClaimDevices, settings: AllocationSettings) -> dict[str, int]:
    """Return the GPU resources that each GPU container of a pod with such a claim has, by name.

    Raises:
        InvalidFieldError: `memoryMiB` is not a multiple of the unit of the memory resource.
    """
    names, factor = settings.resources, settings.memory_factor
    amounts = {names.count: devices.count}
    if devices.exclusivity == "Exclusive":
        return {**amounts, names.memory_percentage: 100, names.cores: 100}
    if devices.memory_mib is not None:
        if devices.memory_mib % factor:
            raise InvalidFieldError(
                field="spec.devices.memoryMiB of the GpuClaim",
                value=devices.memory_mib,
                expected=f"it must be a multiple of {factor}, the MiB of one {names.memory}",
                remedy="create a claim with another amount",
            )
        amounts[names.memory] = devices.memory_mib // factor
    if devices.cores is not None:
        amounts[names.cores] = devices.cores
    return amounts


def check(
    spec: Containers,
    request: PodRequest,
    name: str,
    claim: ClaimSpec,
    settings: AllocationSettings,
    *,
    is_bound: bool = False,
) -> None:
    """Check that no GPU container of a pod contradicts its claim: what it states must be what the claim gives.

    With `is_bound` that is not so for the memory, because GPUBindings come before the claim.

    Raises:
        InvalidFieldError: a container states another amount; the error names both.
    """
    given = resources(claim.devices, settings)
    for field, container in _gpu_containers(spec, request):
        for kind, stated in (("limits", container.resources.limits), ("requests", container.resources.requests)):
            for resource in settings.resources.gpu_resources():
                if stated and resource in stated and not (is_bound and resource == settings.resources.memory):
                    _check_amount(
                        f'{field}.resources.{kind}["{resource}"]', stated[resource], given.get(resource), name
                    )


def read_request(
    spec: Containers,
    request: PodRequest,
    name: str,
    claim: ClaimSpec,
    settings: AllocationSettings,
    *,
    is_bound: bool = False,
) -> ClaimRequest:
    """Return what a pod with `request` requests by the claim `name`; `is_bound` as for `check`.

    Raises:
        InvalidFieldError: a container contradicts the claim.
        AllocationError: no container of the pod requests a GPU.
    """
    if not request:
        raise AllocationError(f"GpuClaim {name}: no container requests a GPU, so admission did not prepare the pod")
    check(spec, request, name, claim, settings, is_bound=is_bound)
    devices, first = claim.devices, request.gpu_containers[0]
    exclusive = devices.exclusivity == "Exclusive"
    cores = WHOLE_CARD if exclusive else (devices.cores or 0) * MILLI_PER_PERCENT
    container = ContainerRequest(
        name=first.name,
        kind=Kind.REGULAR,
        field=first.field,
        count=devices.count,
        memory_mib=None if exclusive else devices.memory_mib or 0,
        memory_percent=100 if exclusive else 0,
        cores=cores,
        whole=exclusive,
    )
    mark = ClaimMark(name, devices.exclusivity)
    return ClaimRequest(mark, PodRequest((container,), request.isolation), devices)


def _gpu_containers(spec: Containers, request: PodRequest) -> Iterator[tuple[str, Container]]:
    """Iterate over the paths and the containers that request a GPU."""
    for container, requested in zip((*spec.init_containers, *spec.containers), request.containers, strict=True):
        if requested.count:
            yield requested.field, container


def _check_amount(field: str, stated: Quantity, given: int | None, name: str) -> None:
    if given is None:
        expected = f"GpuClaim {name} does not give this resource"
        raise InvalidFieldError(field=field, value=stated, expected=expected, remedy="remove it, the claim decides")
    if quantity.whole(stated, field=field, unit="units") != given:
        expected = f"GpuClaim {name} gives {given}"
        raise InvalidFieldError(field=field, value=stated, expected=expected, remedy=f"write {given}, or remove it")
