"""Admission without an API server: what it would make of a manifest, for who wants to know before."""

import json
from collections.abc import Mapping
from typing import Any, Final

import jsonpatch
import msgspec

from allocation import names
from allocation.errors import AllocationError
from allocation.settings import AllocationSettings
from cluster.manifest import NotAdmittedError, UnreadableManifestError, without_nulls
from webhook.mutation import Mutation, Quotas, mutate
from webhook.refusal import RefusedError
from webhook.review import NO_LABELS, Pod, UnreadablePodError, decode_pod
from webhook.settings import WebhookSettings

_SYSTEM: Final = ("kube-system", "kube-public", "kube-node-lease", names.SYSTEM_NAMESPACE)


def admit(
    pod: dict[str, Any], *, username: str, allocation: AllocationSettings, settings: WebhookSettings, quotas: Quotas
) -> Mutation:
    """Leave `pod`, a manifest, as admission would, and answer how it changed.

    Raises:
        UnreadablePodError: it is no pod.
        RefusedError: it asks for what it may not have.
        AllocationError: a field of it holds what it may not hold.
    """
    mutation = mutate(_read(pod), username=username, allocation=allocation, settings=settings, quotas=quotas)
    if mutation.operations:
        jsonpatch.apply_patch(pod, msgspec.to_builtins(mutation.operations), in_place=True)
    return mutation


def rehearse(
    manifest: dict[str, Any],
    *,
    namespace: str,
    labels: Mapping[str, str] | None,
    quotas: Quotas,
    allocation: AllocationSettings,
    settings: WebhookSettings,
) -> tuple[str, ...]:
    """Leave a pod as creating it in a namespace with `labels` would, and answer what its creator would be told.

    Where `labels` is None the namespace does not exist and counts as opted in.

    Raises:
        UnreadableManifestError: it is no pod.
        NotAdmittedError: it would be refused.
    """
    try:
        if labels is not None and not _is_sent(_read(manifest), namespace=namespace, namespace_labels=labels):
            return ()
        return admit(manifest, username="", allocation=allocation, settings=settings, quotas=quotas).warnings
    except UnreadablePodError as error:
        raise UnreadableManifestError(str(error)) from None
    except (RefusedError, AllocationError) as error:
        raise NotAdmittedError(str(error)) from None


def _is_sent(pod: Pod, *, namespace: str, namespace_labels: Mapping[str, str]) -> bool:
    """Whether the API server sends a pod to admission at all (manifests/base/webhook.yaml)."""
    labels = pod.metadata.labels or NO_LABELS
    if namespace in _SYSTEM or labels.hami_webhook == "ignore":
        return False
    word = labels.injection
    if namespace_labels.get(names.INJECTION_LABEL) == "enabled":
        return word != "disabled"
    return word == "enabled"


def _read(pod: dict[str, Any]) -> Pod:
    return decode_pod(msgspec.Raw(json.dumps(without_nulls(pod)).encode()))
