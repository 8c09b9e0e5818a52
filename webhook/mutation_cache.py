"""Caches mutations: pods of one template differ only in fields that admission does not read, so one mutation fits all.

A mutation is a pure function of the fields that are read here of a pod, of its creator, of the quotas and the isolation
of its namespace, of its GpuClaim, of its GpuQueue and of what GPUBindings say about it. The cache key is a digest of
exactly these, so the cache keeps no user data in its keys, and a pod that differs in any of them is mutated on its own.
"""

from hashlib import blake2b
from typing import Final

import msgspec

from allocation import names
from allocation.bindings.granted import Granted
from allocation.claim import ClaimSpec
from allocation.settings import AllocationSettings
from webhook import gangs, patch
from webhook.claimed_pod import DEFAULT_CONTAINER
from webhook.membership import Membership
from webhook.mutation import MIRROR, OPT_OUT_LABELS, Mutation, mutate
from webhook.quotas import Quotas
from webhook.review import Pod, PodMeta
from webhook.settings import WebhookSettings

_MAX_ENTRIES: Final = 1024
_MAX_PATCH_BYTES: Final = 16 * 1024
"""The largest patch that is cached; with `_MAX_ENTRIES` it bounds the memory."""

_OTHER_KEYS: Final = frozenset((MIRROR, DEFAULT_CONTAINER))
"""Annotations of Kubernetes that admission reads."""

_encode_key: Final = msgspec.json.Encoder().encode


class EncodedMutation(msgspec.Struct, frozen=True):
    """A mutation in the form of a review's response.

    Attributes:
        patch: the JSON of the response's `patch`.
        operations: the number of operations in the patch; 0 leaves the pod as it is.
        warnings: warnings for the pod's creator.
        is_ours: whether the pod is managed, also if it is prepared already.
    """

    patch: msgspec.Raw = patch.NONE
    operations: int = 0
    warnings: tuple[str, ...] = ()
    is_ours: bool = False


UNCHANGED: Final = EncodedMutation()


def encode(mutation: Mutation) -> EncodedMutation:
    """Return `mutation` in the form of a review's response."""
    if not mutation.is_ours:
        return UNCHANGED
    encoded = patch.encode(mutation.operations) if mutation.operations else patch.NONE
    return EncodedMutation(encoded, len(mutation.operations), mutation.warnings, is_ours=True)


class MutationCache:
    """Mutates pods by fixed settings, and reuses mutations for equal pods."""

    def __init__(self, *, allocation: AllocationSettings, settings: WebhookSettings) -> None:
        self._allocation = allocation
        self._settings = settings
        self._mutations: dict[bytes, EncodedMutation] = {}

    def get(
        self,
        pod: Pod,
        *,
        username: str,
        quotas: Quotas,
        claim: ClaimSpec | None,
        bound: Granted | None = None,
        membership: Membership | None = None,
        isolation: str = "",
    ) -> EncodedMutation:
        """Return the encoded result of `webhook.mutation.mutate` for `pod`, with the warnings about its gang.

        Raises what `mutate` raises, and for a pod of ours also an AllocationError for a gang that cannot be read.
        """
        relevant = _relevant_fields(pod)
        key = (username, quotas, claim, bound, membership, isolation, relevant)
        digest = blake2b(_encode_key(key), digest_size=16).digest()
        mutation = self._mutations.get(digest)
        if mutation is None:
            mutation = encode(
                mutate(
                    relevant,
                    username=username,
                    allocation=self._allocation,
                    settings=self._settings,
                    quotas=quotas,
                    claim=claim,
                    bound=bound,
                    membership=membership,
                    isolation=isolation,
                )
            )
            if len(bytes(mutation.patch)) <= _MAX_PATCH_BYTES:
                self._add(digest, mutation)
        if not mutation.is_ours:
            return mutation
        more = tuple(gangs.warnings(pod, claim))
        return msgspec.structs.replace(mutation, warnings=(*mutation.warnings, *more)) if more else mutation

    def _add(self, digest: bytes, mutation: EncodedMutation) -> None:
        if len(self._mutations) >= _MAX_ENTRIES:
            del self._mutations[next(iter(self._mutations))]  # the oldest
        self._mutations[digest] = mutation


def _relevant_fields(pod: Pod) -> Pod:
    """Return `pod` without its name and without what others read, in which pods of one template differ."""
    annotations = pod.metadata.annotations
    if annotations is not None:
        annotations = {
            key: value for key, value in annotations.items() if names.is_relevant_key(key) or key in _OTHER_KEYS
        }
    labels = pod.metadata.labels
    if labels is not None:
        labels = {key: labels[key] for key in OPT_OUT_LABELS if key in labels}
    spec = pod.spec
    if spec.scheduling_group is not None:
        spec = msgspec.structs.replace(spec, scheduling_group=None)
    return Pod(PodMeta(annotations=annotations, labels=labels), spec)
