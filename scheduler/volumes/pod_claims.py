"""The PersistentVolumeClaims of a pod, and why it has to wait for them whatever the nodes are."""

from collections.abc import Callable

import msgspec

from allocation.label_selector import OVERSIZED
from scheduler.objects import Pod
from scheduler.pod_spec.volumes import Volume
from scheduler.volumes.bindings import ClaimKey
from scheduler.volumes.objects import Claim

FindClaim = Callable[[ClaimKey], Claim | None]


class PodClaim(msgspec.Struct, frozen=True):
    """A claim that a pod uses.

    Attributes:
        is_ephemeral: whether the claim is made from a template in the pod, and deleted with it.
    """

    key: ClaimKey
    claim: Claim
    is_ephemeral: bool


class PodClaims(msgspec.Struct, frozen=True):
    """The claims of a pod.

    Attributes:
        bound: those that have a volume.
        unbound: those whose volume is chosen together with the node.
        problem: why the pod has to wait for a claim, in kube-scheduler's words; the others are empty then.
    """

    bound: tuple[PodClaim, ...] = ()
    unbound: tuple[PodClaim, ...] = ()
    problem: str = ""


def key_of(volume: Volume, pod: Pod) -> ClaimKey | None:
    """Return the claim of one volume of `pod`, or None if it has none."""
    if volume.persistent_volume_claim is not None:
        return ClaimKey(pod.metadata.namespace, volume.persistent_volume_claim.claim_name)
    if volume.ephemeral is not None:
        return ClaimKey(pod.metadata.namespace, f"{pod.metadata.name}-{volume.name}")
    return None


def read(pod: Pod, find: FindClaim, *, planned: FindClaim, is_delayed: Callable[[Claim], bool]) -> PodClaims:
    """Return the claims of a pod.

    Args:
        pod: the pod.
        find: returns a claim that exists.
        planned: returns a claim that will be created with the pod.
        is_delayed: whether the class of a claim binds it together with the node of its first pod.
    """
    bound: dict[ClaimKey, PodClaim] = {}
    unbound: dict[ClaimKey, PodClaim] = {}
    immediate: list[str] = []
    for volume in pod.spec.volumes:
        key = key_of(volume, pod)
        if key is None:
            continue
        claim = find(key)
        is_ephemeral = volume.persistent_volume_claim is None
        if claim is not None and (problem := _problem(claim, pod, is_ephemeral=is_ephemeral)):
            return PodClaims(problem=problem)
        claim = claim or planned(key)
        if claim is None:
            return PodClaims(problem=_missing(key, is_ephemeral=is_ephemeral))
        if claim.is_bound:
            bound[key] = PodClaim(key, claim, is_ephemeral)
        elif not claim.spec.volume_name and is_delayed(claim):
            unbound[key] = PodClaim(key, claim, is_ephemeral)
        else:
            immediate.append(f'"{key.name}"')
    if immediate:
        return PodClaims(problem=f"pod has unbound immediate PersistentVolumeClaims: {', '.join(immediate)}")
    return PodClaims(tuple(bound.values()), tuple(unbound.values()))


def _missing(key: ClaimKey, *, is_ephemeral: bool) -> str:
    if is_ephemeral:
        return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{key.name}"'
    return f'persistentvolumeclaim "{key.name}" not found'


def _problem(claim: Claim, pod: Pod, *, is_ephemeral: bool) -> str:
    meta = claim.metadata
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{meta.name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if meta.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{meta.name}" is being deleted'
    if is_ephemeral and not any(owner.uid == pod.uid for owner in meta.owner_references):
        return f"PVC {meta.namespace}/{meta.name} was not created for pod {pod} (pod is not owner)"
    if claim.spec.is_oversized and not claim.is_bound:
        return f'persistentvolumeclaim "{meta.name}": spec.selector {OVERSIZED}'
    return ""
