"""The isolation of a new pod: its own, else its namespace's, else the configured one.

Admission writes it into the pod's annotations, where the scheduler and people read it; a policy of manifests/base keeps
it from changing.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from allocation import claim_demands, isolation, names
from allocation.isolation import Isolation
from allocation.names import ISOLATION
from webhook.claimed_pod import NamedClaim
from webhook.patch import Operation, add, pointer
from webhook.review import ForbiddenNowError, ForbiddenPodError, PodSpec
from webhook.settings import WebhookSettings

_LOADS: Final = "LD_PRELOAD"
_SHOWN_CHARACTERS: Final = 63
"""Of a value; a label has no more."""


def choose(
    annotations: Mapping[str, str], claimed: NamedClaim | None, *, of_namespace: str, settings: WebhookSettings
) -> Isolation:
    """Return the isolation of a new GPU pod; `of_namespace` is the label of its namespace, empty without one.

    A pod that asks for MIG instances, by its claim or by HAMi's annotation, is isolated by them, unless it says
    otherwise.

    Raises:
        InvalidFieldError: the annotation of the pod names no isolation.
        ForbiddenPodError: the pod may not choose this one.
        ForbiddenNowError: the label of the namespace names none, or one that is not allowed.
    """
    own = annotations.get(ISOLATION)
    if own is not None:
        chosen, source = isolation.parse(own[:_SHOWN_CHARACTERS], key=ISOLATION), f"annotation {ISOLATION} of the pod"
    elif of_namespace:
        chosen, source = _of_namespace(of_namespace), f"label {ISOLATION} of the namespace"
    else:
        chosen, source = settings.isolation, "webhook.isolation"
    if own is None and chosen is not Isolation.NONE and _asks_for_instances(annotations, claimed):
        chosen, source = Isolation.MIG, "that the pod asks for MIG instances"
    if chosen not in settings.allowed_isolations:
        others, is_final = " or ".join(settings.allowed_isolations), own is not None or not of_namespace
        raise (ForbiddenPodError if is_final else ForbiddenNowError)(
            f"isolation {chosen} is not allowed here, by {source}: choose {others} with annotation {ISOLATION} of the"
            " pod (webhook.allowed_isolations)"
        )
    return chosen


def check(chosen: Isolation, claimed: NamedClaim | None, *, containers: int) -> None:
    """Check that an isolation can hold the GPU `containers` of a pod to what its claim gives.

    Raises:
        AllocationError: it cannot.
    """
    if claimed is not None:
        claim_demands.check_isolation(claimed.spec, claimed.name, chosen, containers=containers)


def warnings(spec: PodSpec, gpu_containers: Collection[str], chosen: Isolation) -> Iterator[str]:
    """Iterate over warnings for the creator of a pod whose limits may have no effect on some nodes."""
    if chosen is not Isolation.HAMI_CORE:
        return
    for container in (*spec.init_containers, *spec.containers):
        if container.name in gpu_containers and not any(each.get("name") == _LOADS for each in container.env or ()):
            yield (f"container {container.name}: {_LOADS} loads no HAMi-core: only HAMi's plugin or delivery nri does")


def annotation_operations(annotations: Mapping[str, str] | None, chosen: Isolation) -> Iterator[Operation]:
    """Iterate over the operations that write an isolation into the annotations of a pod which has none."""
    if annotations is None:
        if chosen is not Isolation.NONE:
            yield add(pointer("metadata", "annotations"), {ISOLATION: chosen.value})
    elif chosen is not Isolation.NONE and ISOLATION not in annotations:
        yield add(pointer("metadata", "annotations", ISOLATION), chosen.value)


def _of_namespace(label: str) -> Isolation:
    try:
        return Isolation(label)
    except ValueError:
        raise ForbiddenNowError(
            f"label {ISOLATION} of the namespace is {label[:_SHOWN_CHARACTERS]!r}: it must be one of"
            f" {', '.join(Isolation)}; change it with 'kubectl label namespace --overwrite', or choose with annotation"
            f" {ISOLATION} of the pod"
        ) from None


def _asks_for_instances(annotations: Mapping[str, str], claimed: NamedClaim | None) -> bool:
    if claimed is not None:
        return claimed.spec.devices.exclusivity == "MIG"
    return annotations.get(names.MODE, "").strip() == Isolation.MIG
