"""Admission without an API server: shows what admission would make of a manifest."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import jsonpatch
import msgspec

from allocation import names
from allocation.bindings.binding import FindBindings
from allocation.bindings.granted import Granted
from allocation.claim import FindClaim
from allocation.errors import AllocationError
from allocation.fairness.queue_spec import FindQueue
from allocation.fairness.quota_spec import QuotaSpec
from allocation.settings import AllocationSettings
from cluster.manifest import NotAdmittedError, UnreadableManifestError, without_nulls
from webhook import claimed_pod, gangs
from webhook.membership import Membership
from webhook.mutation import Mutation, claim_name, mutate
from webhook.quotas import Quotas
from webhook.review import ForbiddenPodError, Pod, UnreadablePodError, decode_pod
from webhook.settings import WebhookSettings

FindMembership = Callable[[Mapping[str, str]], Membership | None]
"""Returns the GpuQueue that a pod with these labels belongs to; None if it belongs to none."""

FindBound = Callable[[Mapping[str, str]], Granted | None]
"""Returns what GPUBindings say about a pod with these labels; None if they do not concern it."""


def admit(
    pod: dict[str, Any],
    *,
    username: str,
    allocation: AllocationSettings,
    settings: WebhookSettings,
    quotas: Quotas,
    find_claim: FindClaim,
    find_membership: FindMembership,
    find_bound: FindBound,
    namespace: str = "",
    isolation: str = "",
) -> Mutation:
    """Change the manifest `pod` in place as admission would, and return the mutation.

    `namespace` is only for messages, `isolation` is its label for pods that choose none.

    Raises:
        UnreadablePodError: `pod` is not a pod.
        ForbiddenPodError: admission would refuse the pod.
        AllocationError: a field of the pod holds an invalid value.
    """
    decoded = _decode(pod)
    name, claim = claim_name(decoded, username=username, settings=settings), None
    if name is not None:
        claim = find_claim(name)
        if claim is None:
            raise claimed_pod.missing(name, namespace)
    mutation = mutate(
        decoded,
        username=username,
        allocation=allocation,
        settings=settings,
        quotas=quotas,
        claim=claim,
        bound=find_bound(decoded.metadata.labels or {}),
        membership=find_membership(decoded.metadata.labels or {}),
        isolation=isolation,
    )
    if mutation.operations:
        jsonpatch.apply_patch(pod, msgspec.to_builtins(mutation.operations), in_place=True)
    return mutation


def dry_run(
    manifest: dict[str, Any],
    *,
    namespace: str,
    labels: Mapping[str, str] | None,
    quotas: Mapping[str, Mapping[str, str]],
    gpu_quotas: Mapping[str, QuotaSpec],
    find_claim: FindClaim,
    find_queue: FindQueue,
    find_bindings: FindBindings,
    allocation: AllocationSettings,
    settings: WebhookSettings,
) -> tuple[str, ...]:
    """Change a pod in place as its creation in a namespace with `labels` would; return the warnings for its creator.

    Where `labels` is None the namespace does not exist and counts as opted in. `quotas` are the `spec.hard` of its
    ResourceQuotas, and `gpu_quotas` the `spec` of its GpuQuotas, by name; `find_bindings` returns the GPUBindings of an
    application.

    Raises:
        UnreadableManifestError: `manifest` is not a pod.
        NotAdmittedError: admission would refuse the pod.
    """
    try:
        if labels is not None and not _is_reviewed(_decode(manifest), namespace, labels, settings):
            return ()
        mutation = admit(
            manifest,
            username="",
            allocation=allocation,
            settings=settings,
            quotas=Quotas(quotas, gpu_quotas),
            find_claim=find_claim,
            find_membership=partial(
                Membership.of_labels, namespace=namespace, of_namespace=labels, find_queue=find_queue
            ),
            find_bound=partial(
                Granted.of_labels, namespace=namespace, find_bindings=find_bindings, settings=allocation.bindings
            ),
            namespace=namespace,
            isolation=(labels or {}).get(names.ISOLATION, ""),
        )
        return (*mutation.warnings, *(_gang_warnings(_decode(manifest), find_claim) if mutation.is_ours else ()))
    except UnreadablePodError as error:
        raise UnreadableManifestError(str(error)) from None
    except (ForbiddenPodError, AllocationError) as error:
        raise NotAdmittedError(str(error)) from None


def _gang_warnings(pod: Pod, find_claim: FindClaim) -> Iterator[str]:
    """Iterate over the warnings about the gang of a pod of ours; refuse one that cannot be read."""
    annotations = pod.metadata.annotations or {}
    return gangs.warnings(pod, find_claim(annotations[names.CLAIM]) if names.CLAIM in annotations else None)


def _is_reviewed(pod: Pod, namespace: str, namespace_labels: Mapping[str, str], settings: WebhookSettings) -> bool:
    """Whether the API server sends a pod to admission at all (manifests/base/webhook.yaml)."""
    labels = pod.metadata.labels or {}
    injection, is_excluded = labels.get(names.INJECTION_LABEL), namespace in settings.excluded_namespaces
    if labels.get(names.HAMI_WEBHOOK_LABEL) == "ignore":
        return False
    if namespace_labels.get(names.INJECTION_LABEL) == "enabled":
        return injection != "disabled" and not is_excluded
    if injection == "enabled":
        return not is_excluded
    return injection != "disabled" and namespace in settings.included_namespaces


def _decode(pod: dict[str, Any]) -> Pod:
    return decode_pod(msgspec.Raw(json.dumps(without_nulls(pod)).encode()))
