"""Prepares a pod for its GpuClaim: the cards become GPU resources of containers, the labels a node selector.

Both are fields of the immutable spec, so quotas, policies and all schedulers see them. The scheduler reads the rest of
the claim, such as how the cards are shared, from the claim itself.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from allocation import claim as gpu_claim
from allocation import claim_demands, fabric, names
from allocation.claim import ClaimSpec
from allocation.errors import InvalidFieldError
from allocation.pod import Resources
from allocation.quantity import Quantity
from allocation.request import PodRequest, read_request, requests_gpu
from allocation.settings import AllocationSettings, ResourceNames
from allocation.wire import environment
from webhook.patch import Operation, add, pointer
from webhook.resources import GpuContainer, stated_resources
from webhook.review import ForbiddenNowError, ForbiddenPodError, Pod, PodContainer, PodSpec

DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
"""The annotation that names a pod's main container; injectors of sidecars set it, too."""
_object_name: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*").fullmatch


class NamedClaim(msgspec.Struct, frozen=True):
    """A claim, by the name by which a pod names it."""

    name: str
    spec: ClaimSpec

    def bound(self, memory_mib: int) -> "NamedClaim":
        """Return the claim with the memory that GPUBindings set, which comes before its own (docs/gpubindings.md)."""
        devices = msgspec.structs.replace(self.spec.devices, memory_mib=memory_mib)
        return NamedClaim(self.name, msgspec.structs.replace(self.spec, devices=devices))


class ClaimedPod(msgspec.Struct, frozen=True):
    """A pod as admission prepares it for its claim.

    Attributes:
        containers: its GPU containers by name.
        request: what is placed, which counts against quotas.
        warnings: warnings for the pod's creator.
    """

    containers: dict[str, GpuContainer]
    request: PodRequest
    warnings: tuple[str, ...] = ()


def read_name(annotations: Mapping[str, str]) -> str | None:
    """Return the name of the claim in the annotations of a pod, or None where it names none.

    Raises:
        InvalidFieldError: no object can have this name.
    """
    name = annotations.get(names.CLAIM)
    if name is not None and (len(name) > names.MAX_NAME_LENGTH or not _object_name(name)):
        raise InvalidFieldError(
            field=f'metadata.annotations["{names.CLAIM}"]',
            value=name,
            expected="it must be the name of a GpuClaim in the namespace of the pod",
            remedy="write the name alone, without a namespace, or remove the annotation",
        )
    return name


def missing(name: str, namespace: str = "") -> ForbiddenNowError:
    """Return the refusal of a pod whose claim does not exist; an empty `namespace` is not known."""
    where = f"namespace {namespace}" if namespace else "the namespace of the pod"
    return ForbiddenNowError(
        f"GpuClaim {name} does not exist in {where}: create it there first, then the pod, or remove annotation"
        f" {names.CLAIM} (see 'kubectl get gpuclaims{f' -n {namespace}' if namespace else ''}')"
    )


def named(annotations: Mapping[str, str], spec: ClaimSpec | None) -> NamedClaim | None:
    """Return the claim of a pod with these annotations, whose `spec` is None if it does not exist.

    Raises:
        ForbiddenNowError: it does not exist.
        InvalidFieldError: no object can have its name.
    """
    name = read_name(annotations)
    if name is None:
        return None
    if spec is None:
        raise missing(name)
    return NamedClaim(name, spec)


def prepare(
    pod: Pod, claimed: NamedClaim, settings: AllocationSettings, *, gpu_containers: Collection[str] = ()
) -> ClaimedPod:
    """Return how `pod` is prepared for its claim.

    The cards go to `gpu_containers`, to those that request a GPU, or, if no container does, to the main container.

    Raises:
        ForbiddenPodError: no container may have the cards.
        InvalidFieldError: a container states something else than the claim gives.
    """
    name, claim = claimed.name, claimed.spec
    warnings: tuple[str, ...] = ()
    if not gpu_containers:
        gpu_containers = [each.name for each in read_request(pod.spec, settings).gpu_containers]
    if not gpu_containers:
        main = _main_container(pod, name, settings)
        gpu_containers = [main]
        if len(pod.spec.containers) + len(pod.spec.init_containers) > 1:
            warnings = (
                f"GpuClaim {name}: no container requests {settings.resources.count}, so only {main} gets the cards",
            )
    given = {each: str(amount) for each, amount in gpu_claim.resources(claim.devices, settings).items()}
    completed = _completed(pod.spec, gpu_containers, given, settings.resources)
    request = read_request(completed, settings)
    placed = gpu_claim.read_request(completed, request, name, claim, settings).placed
    demand = claim_demands.fabric(claim)
    variables = fabric.variables(demand) if demand is not None else ()
    all_containers = (*completed.init_containers, *completed.containers)
    containers = {
        container.name: GpuContainer(
            cards=requested.count,
            resources=_gpu_resources(container, settings),
            constants=environment.constants(priority=requested.priority, core_policy=settings.core_policy),
            fabric=variables,
        )
        for container, requested in zip(all_containers, request.containers, strict=True)
        if requested.count
    }
    return ClaimedPod(containers, placed, warnings)


def node_selector(spec: PodSpec, claimed: NamedClaim | None) -> Iterator[Operation]:
    """Iterate over the operations that add the labels of a claim, if there is one, to the node selector of its pod.

    Raises:
        InvalidFieldError: the pod requires another value of one of the labels.
    """
    if claimed is None or not claimed.spec.node_labels:
        return
    present = spec.node_selector
    if not present:
        yield add(pointer("spec", "nodeSelector"), dict(claimed.spec.node_labels))
        return
    for label, value in claimed.spec.node_labels.items():
        if label not in present:
            yield add(pointer("spec", "nodeSelector", label), value)
        elif present[label] != value:
            raise InvalidFieldError(
                field=f'spec.nodeSelector["{label}"]',
                value=present[label],
                expected=f"GpuClaim {claimed.name} requires {value!r}",
                remedy="remove it, or name another claim",
            )


def _main_container(pod: Pod, name: str, settings: AllocationSettings) -> str:
    """Return the container that gets the cards if none requests a GPU; a count of 0 declines them."""
    willing = [container.name for container in pod.spec.containers if not requests_gpu(container, settings)]
    if not willing:
        raise ForbiddenPodError(
            f"the pod names GpuClaim {name}, but every container requests 0 {settings.resources.count}: remove that"
            f" from the container that is to have the cards, or remove annotation {names.CLAIM}"
        )
    named = (pod.metadata.annotations or {}).get(DEFAULT_CONTAINER)
    return named if named is not None and named in willing else willing[0]


def _completed(
    spec: PodSpec, gpu_containers: Collection[str], given: Mapping[str, str], resources: ResourceNames
) -> PodSpec:
    """Return `spec` with what its GPU containers get by the claim and do not state.

    TFLOPs contradict every claim, so no cores are added to them: the error is to name what the container states.
    """

    def complete(container: PodContainer) -> PodContainer:
        if container.name not in gpu_containers:
            return container
        limits, requests = container.resources.limits, container.resources.requests
        hidden = resources.cores if resources.tflops in stated_resources(container) else ""
        added = {name: amount for name, amount in given.items() if name != hidden}
        return msgspec.structs.replace(container, resources=Resources({**added, **(limits or {})}, requests))

    return msgspec.structs.replace(
        spec,
        init_containers=[complete(container) for container in spec.init_containers],
        containers=[complete(container) for container in spec.containers],
    )


def _gpu_resources(container: PodContainer, settings: AllocationSettings) -> dict[str, Quantity]:
    stated = stated_resources(container)
    return {name: stated[name] for name in settings.resources.gpu_resources() if name in stated}
