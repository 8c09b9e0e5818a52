"""Decides on a review, counts it and logs it. The HTTP part is in `webhook.routes`."""

import logging
import time
from collections.abc import Callable
from typing import Final

import msgspec

from allocation.claim import ClaimSpec
from allocation.errors import AllocationError
from allocation.settings import AllocationSettings
from webhook import claimed_pod, ephemeral_containers, mutation, mutation_cache, review
from webhook.bindings import BindingLookup
from webhook.claims import ClaimLookup, ReadClaim, UncachedClaimError
from webhook.membership import MembershipLookup
from webhook.metrics import OUTCOMES, Metrics, Outcome
from webhook.mutation_cache import UNCHANGED, EncodedMutation, MutationCache
from webhook.quotas import Quotas
from webhook.review import (
    ForbiddenPodError,
    Pod,
    Request,
    UnavailableClaimError,
    UnreadablePodError,
    UnreadableReviewError,
)
from webhook.settings import WebhookSettings

log = logging.getLogger(__name__)

_REVIEWED: Final = frozenset((("", "CREATE"), ("ephemeralcontainers", "UPDATE")))
"""Subresource and operation of the pod requests that admission may change or refuse."""


class _LogEntry(msgspec.Struct, omit_defaults=True):
    """The structured log fields of one review; `review` is its UID."""

    review: str = ""
    pod: str = ""
    user: str = ""
    outcome: Outcome = "error"
    operations: int = 0
    warnings: int = 0
    reason: str = ""
    milliseconds: float = 0.0


class Admission:
    """The admission of pods: takes an AdmissionReview, returns its response."""

    def __init__(
        self,
        *,
        allocation: AllocationSettings,
        settings: WebhookSettings,
        metrics: Metrics,
        quotas: Callable[[str], Quotas],
        claims: ClaimLookup,
        memberships: MembershipLookup | None,
        bindings: BindingLookup | None,
    ) -> None:
        """Use these settings; `quotas` returns the quotas of a namespace.

        `memberships` are None where no GpuQueue counts, and `bindings` where no GPUBinding does.
        """
        self._quotas = quotas
        self._claims = claims
        self._memberships = memberships
        self._bindings = bindings
        self._settings = settings
        self._mutations = MutationCache(allocation=allocation, settings=settings)
        self._count = {outcome: metrics.reviews.labels(outcome).inc for outcome in OUTCOMES}
        self._observe = metrics.seconds.observe

    def answer(self, body: bytes) -> bytes:
        """Return the response to the AdmissionReview in `body`, as an AdmissionReview.

        Raises:
            UnreadableReviewError: `body` is not an AdmissionReview, so it has no uid that a response could carry.
            UncachedClaimError: the pod's GpuClaim must be read first: call `answer_after_reading`.
        """
        return self._answer(body, time.perf_counter(), None)

    async def answer_after_reading(self, body: bytes, uncached: UncachedClaimError) -> bytes:
        """Return the response to a review for which `answer` raised `uncached`."""
        begin = time.perf_counter()
        return self._answer(body, begin, await self._claims.read(uncached.namespace, uncached.name))

    def _answer(self, body: bytes, begin: float, read: ReadClaim | None) -> bytes:
        entry, is_answered = _LogEntry(), True
        try:
            return self._respond(body, entry, read)
        except UnreadableReviewError as error:
            entry.outcome, entry.reason = "malformed", str(error)
            raise
        except UncachedClaimError:
            is_answered = False
            raise
        finally:
            if is_answered:
                self._record(entry, seconds=time.perf_counter() - begin)

    def _record(self, entry: _LogEntry, *, seconds: float) -> None:
        entry.milliseconds = round(seconds * 1000, 3)
        self._count[entry.outcome]()
        self._observe(seconds)
        pod = entry.pod or "(unreadable)"
        log.info("review of pod %s: %s", pod, entry.outcome, extra=msgspec.to_builtins(entry))

    def _respond(self, body: bytes, entry: _LogEntry, read: ReadClaim | None) -> bytes:
        decoded = review.decode_review(body)
        request = decoded.request
        entry.review, entry.pod, entry.user = request.uid, f"{request.namespace}/", request.user_info.username
        try:
            mutation = self._mutate(request, entry, read)
        except UnreadablePodError as error:
            entry.outcome, entry.reason = "malformed", str(error)
            return review.refuse(decoded, message=entry.reason, code=400)
        except AllocationError as error:
            entry.outcome, entry.reason = "refused", str(error)
            return review.refuse(decoded, message=entry.reason, code=400)
        except ForbiddenPodError as error:
            entry.outcome, entry.reason = "refused", str(error)
            return review.refuse(decoded, message=entry.reason, code=403)
        except UnavailableClaimError as error:
            entry.outcome, entry.reason = "refused", str(error)
            return review.refuse(decoded, message=entry.reason, code=503)
        entry.outcome = "mutated" if mutation.operations else "untouched"
        entry.operations, entry.warnings = mutation.operations, len(mutation.warnings)
        return review.allow(decoded, patch_json=mutation.patch, warnings=mutation.warnings)

    def _mutate(self, request: Request, entry: _LogEntry, read: ReadClaim | None) -> EncodedMutation:
        """Return the mutation of the pod in a request; unchanged where admission does not handle the request."""
        if request.kind.kind != "Pod" or (request.sub_resource, request.operation) not in _REVIEWED:
            return UNCHANGED
        pod = review.decode_pod(request.object)
        entry.pod += pod.metadata.name or pod.metadata.generate_name
        if request.sub_resource:
            old_pod = review.decode_pod(request.old_object)
            return mutation_cache.encode(ephemeral_containers.mutate(pod, old_pod=old_pod))
        claim, labels = self._claim(pod, request, read), pod.metadata.labels or {}
        return self._mutations.get(
            pod,
            username=entry.user,
            quotas=self._quotas(request.namespace),
            claim=claim,
            bound=self._bindings.of_pod(labels, request.namespace) if self._bindings is not None else None,
            membership=self._memberships.of_pod(labels, request.namespace) if self._memberships is not None else None,
        )

    def _claim(self, pod: Pod, request: Request, read: ReadClaim | None) -> ClaimSpec | None:
        """Return the GpuClaim that a new pod names, from the local copy or as it was `read`; None if it names none."""
        name = mutation.claim_name(pod, username=request.user_info.username, settings=self._settings)
        if name is None:
            return None
        spec = self._claims.cached(request.namespace, name) if read is None else read.spec
        if spec is not None:
            return spec
        if read is None:
            raise UncachedClaimError(request.namespace, name)
        if read.failure:
            raise UnavailableClaimError(f"GpuClaim {name} cannot be read: {read.failure}; create the pod again")
        raise claimed_pod.missing(name, request.namespace)
