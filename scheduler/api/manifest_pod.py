"""Reads the manifest of a pod that does not exist yet, with the changes that admission would make."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from allocation.bindings.binding import FindBindings
from allocation.claim import ClaimSpec, FindClaim
from allocation.errors import AllocationError
from allocation.fairness.queue_spec import FindQueue, QueueKey, QueueSpec
from allocation.fairness.quota_spec import QuotaSpec
from cluster.manifest import UnreadableManifestError, without_nulls
from scheduler.api import manifest_claims
from scheduler.api.manifest_gpu_claim import read_gpu_claim
from scheduler.api.request_body import Manifests
from scheduler.filters import resources
from scheduler.objects import Pod, PodStatus
from scheduler.state.cluster_state import ClusterState
from scheduler.volumes.planned_pod import PlannedPod


class UnknownSchedulerError(Exception):
    """Another scheduler would place the pod; the message is its name."""


class Admit(Protocol):
    """Admission, as a function: this package must not import the webhook."""

    def __call__(
        self,
        manifest: dict[str, Any],
        *,
        namespace: str,
        labels: Mapping[str, str] | None,
        quotas: Mapping[str, Mapping[str, str]],
        gpu_quotas: Mapping[str, QuotaSpec],
        find_claim: FindClaim,
        find_queue: FindQueue,
        find_bindings: FindBindings,
    ) -> Sequence[str]:
        """Change `manifest` as admission would, and return the warnings.

        `labels` are those of the namespace, None if it does not exist; `quotas` are the `spec.hard` of its
        ResourceQuotas, by name, and `gpu_quotas` the `spec` of its GpuQuotas; `find_claim` returns its GpuClaims,
        `find_queue` the GpuQueues, and `find_bindings` the GPUBindings of an application.

        Raises:
            UnreadableManifestError: the manifest is not a Pod.
            NotAdmittedError: admission would refuse the pod.
        """


class SubmittedPod(msgspec.Struct, frozen=True):
    """A pod that could be created now, and the warnings that its creator would get.

    Attributes:
        pod: the pod, as admission leaves it, with the claims that would be created together with it.
        warnings: the warnings, and the assumptions of the simulation.
    """

    pod: PlannedPod
    warnings: tuple[str, ...]


def other_scheduler_message(scheduler: str, namespace: str) -> str:
    """Return the text for a pod that another scheduler would place, with the remedy."""
    return (
        f"scheduler {scheduler} would place the pod: it asks for no GPU, names that scheduler, or is not opted in;"
        f" 'kubectl label namespace {namespace} gpu.scheduling/injection=enabled' opts in all pods of the namespace"
    )


def read_pod(
    state: ClusterState, manifests: Manifests, admit: Admit, *, namespace: str = "default", uid: str = ""
) -> SubmittedPod:
    """Return the pod that would exist if `manifests` were created, in `namespace` unless they name one.

    `uid` is the pod's.

    Raises:
        UnreadableManifestError: a field has an invalid value.
        NotAdmittedError: admission would refuse it.
        UnknownSchedulerError: another scheduler would place the pod.
    """
    admitted: Any = without_nulls(manifests.pod)
    metadata = admitted.setdefault("metadata", {})
    if not isinstance(metadata, dict) or not isinstance(metadata.setdefault("namespace", namespace), str):
        raise UnreadableManifestError("metadata must be an object, and metadata.namespace a string")
    namespace = metadata["namespace"]
    labels = state.node_cache.namespaces.get(namespace)
    gpu_claims = _gpu_claims(manifests.gpu_claim, namespace=namespace)
    warnings = [
        *admit(
            admitted,
            namespace=namespace,
            labels=labels,
            quotas=state.quotas.hards(namespace),
            gpu_quotas=state.quotas.specs(namespace),
            find_claim=partial(state.requirements.find_claim, namespace=namespace, planned=gpu_claims),
            find_queue=partial(_find_queue, state),
            find_bindings=state.bindings.of_app,
        )
    ]
    try:
        pod = msgspec.convert(admitted, Pod)
    except msgspec.ValidationError as error:
        raise UnreadableManifestError(str(error)) from None
    if not state.is_ours(pod):
        raise UnknownSchedulerError(pod.spec.scheduler_name or "default-scheduler")
    try:
        resources.requests(pod, ours=())
    except AllocationError as error:
        raise UnreadableManifestError(f"a quantity of the pod cannot be read: {error}") from None
    warnings += state.priority_classes.admit(pod, admitted.get("spec") or {})
    if labels is None:
        warnings.append(
            f"namespace {namespace} does not exist; the result assumes that it is opted in and has no quotas"
        )
    if pod.spec.scheduling_gates:
        warnings.append(
            f"spec.schedulingGates: the pod stays gated until {pod.spec.gates} are removed; the result shows what would"
            " happen afterwards"
        )
    pod.metadata.uid, pod.status = uid, PodStatus()
    pod.metadata.name = pod.metadata.name or str(metadata.get("generateName", ""))
    claims = manifest_claims.read_claims(
        manifests.claims, pod=pod, pod_manifest=admitted, classes=state.volumes.objects.classes.values()
    )
    return SubmittedPod(PlannedPod.of(pod, claims, gpu_claims), tuple(warnings))


def _find_queue(state: ClusterState, name: str) -> QueueSpec | None:
    queue = state.fair_share.queues.get(QueueKey(name=name))
    return queue.spec if queue is not None else None


def _gpu_claims(manifest: dict[str, Any] | None, *, namespace: str) -> dict[str, ClaimSpec]:
    """Return the spec of the GpuClaim that is created together with a pod in `namespace`, by its name."""
    if manifest is None:
        return {}
    claim = read_gpu_claim(manifest)
    name, own = claim.metadata.name, claim.metadata.namespace or namespace
    if own != namespace:
        raise UnreadableManifestError(
            f"GpuClaim {name} has namespace {own!r}, but the pod has {namespace!r}: a pod can name only a claim of its"
            " own namespace"
        )
    return {name: claim.spec}
