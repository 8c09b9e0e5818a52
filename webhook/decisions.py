"""What was decided about pods like this one: those of one template read the same, so they are decided once.

A decision is a pure function of what is read here of a pod, of who sends it and of the quotas of its namespace. It is
remembered by a digest of exactly that, so nothing of a user's is kept, and a pod that differs in anything that is read
is decided anew.
"""

from hashlib import blake2b
from typing import Final

import msgspec

from allocation import names
from allocation.settings import AllocationSettings
from webhook import patch
from webhook.mutation import MIRROR, Mutation, Quotas, mutate
from webhook.review import Pod, PodMeta
from webhook.settings import WebhookSettings

_MOST: Final = 1024
_LARGEST: Final = 16 * 1024
"""Bytes of a patch that is remembered; with `_MOST` it bounds the memory."""

_encode: Final = msgspec.json.Encoder().encode


class Decision(msgspec.Struct, frozen=True):
    """A pod may be created.

    Attributes:
        patch: how it changes, as a review's answer carries it.
        operations: how many the patch has; 0 leaves the pod as it is.
        warnings: what its creator should know.
    """

    patch: msgspec.Raw = patch.NONE
    operations: int = 0
    warnings: tuple[str, ...] = ()


UNTOUCHED: Final = Decision()


def decided(mutation: Mutation) -> Decision:
    """Answer `mutation` as an answer carries it."""
    if not mutation.operations and not mutation.warnings:
        return UNTOUCHED
    return Decision(patch.encode(mutation.operations), len(mutation.operations), mutation.warnings)


class Decisions:
    """Decides by the settings that it was given."""

    def __init__(self, *, allocation: AllocationSettings, settings: WebhookSettings) -> None:
        self._allocation = allocation
        self._settings = settings
        self._made: dict[bytes, Decision] = {}

    def about(self, pod: Pod, *, username: str, quotas: Quotas) -> Decision:
        """Answer what `webhook.mutation.mutate` makes of `pod`; raises what that raises."""
        read = _as_read(pod)
        digest = blake2b(_encode((username, quotas, read)), digest_size=16).digest()
        decision = self._made.get(digest)
        if decision is None:
            decision = decided(
                mutate(read, username=username, allocation=self._allocation, settings=self._settings, quotas=quotas)
            )
            if len(bytes(decision.patch)) <= _LARGEST:
                self._remember(digest, decision)
        return decision

    def _remember(self, digest: bytes, decision: Decision) -> None:
        if len(self._made) >= _MOST:
            del self._made[next(iter(self._made))]  # the oldest
        self._made[digest] = decision


def _as_read(pod: Pod) -> Pod:
    """Answer `pod` without its name and the annotations of others, in which the pods of a template differ."""
    told = pod.metadata.annotations
    kept = {key: value for key, value in told.items() if names.is_of_ours(key) or key == MIRROR} if told else None
    return Pod(PodMeta(annotations=kept, labels=pod.metadata.labels), pod.spec)
