"""Explains the GpuClaim of a pod: whether it exists, and how the pod has its cards."""

from allocation import names
from allocation.allocation import ClaimMark
from scheduler.api.explanation_types import GpuClaimExplanation
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from scheduler.volumes.planned_pod import PlannedPod


def gpu_claim(state: ClusterState, pod: Pod, mark: ClaimMark | None = None) -> GpuClaimExplanation | None:
    """Return the claim that `pod` names, or None if it names none; `mark` is that of its allocation."""
    name = mark.name if mark is not None else pod.metadata.annotations.get(names.CLAIM)
    if name is None:
        return None
    planned = pod.gpu_claims if isinstance(pod, PlannedPod) else {}
    namespace = pod.metadata.namespace
    exists = state.requirements.find_claim(name, namespace=namespace) is not None
    spec = state.requirements.find_claim(name, namespace=namespace, planned=planned)
    if spec is None:
        return GpuClaimExplanation(name, mark.exclusivity if mark is not None else None)
    exclusivity = mark.exclusivity if mark is not None else spec.devices.exclusivity
    return GpuClaimExplanation(name, exclusivity, exists, spec.devices.profile)


def hints(claim: GpuClaimExplanation | None, *, namespace: str) -> tuple[str, ...]:
    """Return what to do about a missing `claim` of a pod in `namespace`."""
    if claim is None or claim.exclusivity is not None:
        return ()
    hint = (
        f"create GpuClaim {claim.name} in namespace {namespace}, where 'kubectl get gpuclaims -n {namespace}' lists the"
        " existing ones; a pod that names the wrong claim has to be created again"
    )
    return (hint,)
