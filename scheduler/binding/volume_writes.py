"""What is written to claims and PersistentVolumes before a pod is bound, and how it is taken back: pure functions.

Each returns a merge patch for an object as it was read, or None if it needs none. `scheduler.binding.conditional_patch`
applies it to that version of the object only.

None of these writes is fenced as a Binding is, because none can do harm: a write that arrives late, of a pod that is
gone or of a scheduler that does not lead any more, only names a node or a claim, as kube-scheduler's does.
- The provisioner that the annotation concerns creates the volume or removes the annotation; kube-controller-manager
  binds the claim to the volume that names it, or, if the claim has another one, clears the `claimRef` again.
- Every scheduler reads both as they are, and the pod follows the volume. No pod is bound before its claims are, and
  that Binding is fenced.
"""

from typing import Any, Final

from scheduler.volumes.bindings import ClaimKey
from scheduler.volumes.objects import BOUND_BY_CONTROLLER, SELECTED_NODE, Claim, PersistentVolume

_UNUSED_PHASES: Final = ("", "Pending", "Available")
"""Phases of a volume that no controller has bound or released."""

Patch = dict[str, Any]


class NotBoundError(Exception):
    """A claim does not get its volume on the chosen node; the message says why, and what to do."""


def key_of(claim: Claim) -> ClaimKey:
    """Return the key of a claim."""
    return ClaimKey(claim.metadata.namespace, claim.metadata.name)


def names_another(claim: Claim, node: str) -> NotBoundError:
    """Return the error for a claim whose volume is provisioned for another node than `node`."""
    selected = claim.metadata.annotations.get(SELECTED_NODE, "")
    return NotBoundError(f"the volume of claim {key_of(claim)} is being provisioned for node {selected}, not {node}")


def select_node(claim: Claim, *, node: str, uid: str) -> Patch | None:
    """Select `node` for the volume of the claim with this `uid`, which is then provisioned for it.

    Raises:
        NotBoundError: the claim is another one now, or names another node.
    """
    selected = claim.metadata.annotations.get(SELECTED_NODE, "")
    if claim.metadata.uid != uid:
        raise NotBoundError(f"claim {key_of(claim)} was deleted and created again")
    if claim.spec.volume_name or selected == node:
        return None
    if selected:
        raise names_another(claim, node)
    return {"metadata": {"annotations": {SELECTED_NODE: node}}}


def deselect_node(claim: Claim, *, node: str, uid: str) -> Patch | None:
    """Take back the selection of `node`, whoever wrote it, unless the claim has a volume.

    This is safe although a provisioner may be at work: it binds the volume that it has created to the claim whatever
    the annotation says by then, and the pod follows the volume. Until then the pod may find a better node.
    """
    is_ours = claim.metadata.uid == uid and claim.metadata.annotations.get(SELECTED_NODE) == node
    if claim.spec.volume_name or not is_ours:
        return None
    return {"metadata": {"annotations": {SELECTED_NODE: None}}}


def reserve(volume: PersistentVolume, *, claim: Claim) -> Patch | None:
    """Reserve a volume for a claim; kube-controller-manager then binds both.

    The annotation tells it that no user made the reservation, so that it may clear it.

    Raises:
        NotBoundError: the volume is being deleted, or is reserved for another claim.
    """
    reference = volume.spec.claim_ref
    if volume.metadata.deletion_timestamp:
        raise NotBoundError(f"PersistentVolume {volume.metadata.name}, chosen for {key_of(claim)}, is being deleted")
    annotations: dict[str, str] = {BOUND_BY_CONTROLLER: "yes"}
    if reference is not None:
        if reference.uid == claim.metadata.uid:
            return None
        if reference.uid or ClaimKey(reference.namespace, reference.name) != key_of(claim):
            raise NotBoundError(
                f"PersistentVolume {volume.metadata.name}, chosen for claim {key_of(claim)}, is reserved for claim"
                f" {reference.namespace}/{reference.name}"
            )
        annotations = {}
    claim_ref = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.metadata.namespace,
        "name": claim.metadata.name,
        "uid": claim.metadata.uid,
        "resourceVersion": claim.metadata.resource_version,
    }
    return {"metadata": {"annotations": annotations}, "spec": {"claimRef": claim_ref}}


def release(volume: PersistentVolume, *, claim_uid: str) -> Patch | None:
    """Take back the reservation of a volume for a claim, unless a controller has bound or released the volume.

    This is safe although kube-controller-manager may be about to bind both: it writes the phase of the volume before it
    writes the claim, so one of the two writes finds an outdated resourceVersion. A user's own
    reservation by name stays.
    """
    reference = volume.spec.claim_ref
    if reference is None or reference.uid != claim_uid or volume.status.phase not in _UNUSED_PHASES:
        return None
    if BOUND_BY_CONTROLLER in volume.metadata.annotations:
        return {"metadata": {"annotations": {BOUND_BY_CONTROLLER: None}}, "spec": {"claimRef": None}}
    return {"spec": {"claimRef": {"uid": None, "resourceVersion": None}}}
