"""Decides on a review, counts it and logs it. The HTTP part is in `webhook.routes`."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from allocation import names
from allocation.bindings.granted import Granted
from allocation.claim import ClaimSpec
from allocation.errors import AllocationError
from allocation.settings import AllocationSettings
from webhook import claimed_pod, ephemeral_containers, mutation, mutation_cache, pod_templates, review
from webhook.bindings import BindingLookup
from webhook.claims import ClaimLookup, ReadClaim, UncachedClaimError
from webhook.membership import Membership, MembershipLookup
from webhook.metrics import OUTCOMES, Metrics, Outcome
from webhook.mutation import Mutation, mutate
from webhook.mutation_cache import UNCHANGED, EncodedMutation, MutationCache
from webhook.pod_templates import Template, UnreadableWorkloadError
from webhook.quotas import Quotas
from webhook.review import (
    ForbiddenNowError,
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
    """The structured log fields of one review; `review` is its UID.

    A review is of a `pod`, or of a `workload` with pod templates.
    """

    review: str = ""
    pod: str = ""
    workload: str = ""
    user: str = ""
    outcome: Outcome = "error"
    operations: int = 0
    warnings: int = 0
    reason: str = ""
    milliseconds: float = 0.0


class Admission:
    """The admission of pods and of their templates: takes an AdmissionReview, returns its response."""

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
        isolation_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        """Use these settings; `quotas` returns the quotas of a namespace, `isolation_of` its label for isolation.

        `memberships` are None where no GpuQueue counts, and `bindings` where no GPUBinding does.
        """
        self._quotas = quotas
        self._claims = claims
        self._memberships = memberships
        self._bindings = bindings
        self._isolation_of = isolation_of
        self._allocation = allocation
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
        return self._answer(body, time.perf_counter(), {})

    async def answer_after_reading(self, body: bytes, uncached: UncachedClaimError) -> bytes:
        """Return the response to a review for which `answer` raised `uncached`."""
        begin = time.perf_counter()
        return self._answer(body, begin, {uncached.name: await self._claims.read(uncached.namespace, uncached.name)})

    def _answer(self, body: bytes, begin: float, reads: Mapping[str, ReadClaim]) -> bytes:
        entry, is_answered = _LogEntry(), True
        try:
            return self._respond(body, entry, reads)
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
        subject = entry.workload or f"pod {entry.pod or '(unreadable)'}"
        log.info("review of %s: %s", subject, entry.outcome, extra=msgspec.to_builtins(entry))

    def _respond(self, body: bytes, entry: _LogEntry, reads: Mapping[str, ReadClaim]) -> bytes:
        decoded = review.decode_review(body)
        request = decoded.request
        entry.review, entry.user = request.uid, request.user_info.username
        try:
            mutation = self._mutate(request, entry, reads)
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

    def _mutate(self, request: Request, entry: _LogEntry, reads: Mapping[str, ReadClaim]) -> EncodedMutation:
        """Return the mutation of the object in a request; unchanged where admission does not handle the request."""
        if pod_templates.are_in(request.kind) and (request.sub_resource, request.operation) == ("", "CREATE"):
            entry.workload = f"{request.kind.kind} {request.namespace}/{request.name[: names.MAX_NAME_LENGTH]}"
            return mutation_cache.encode(self._complete(request, reads))
        entry.pod = f"{request.namespace}/"
        if request.kind.kind != "Pod" or (request.sub_resource, request.operation) not in _REVIEWED:
            return UNCHANGED
        pod = review.decode_pod(request.object)
        entry.pod += pod.metadata.name or pod.metadata.generate_name
        if request.sub_resource:
            old_pod = review.decode_pod(request.old_object)
            return mutation_cache.encode(ephemeral_containers.mutate(pod, old_pod=old_pod))
        return self._mutations.get(
            pod,
            username=entry.user,
            quotas=self._quotas(request.namespace),
            claim=self._claim(pod, request, reads),
            bound=self._bound(pod, request),
            membership=self._membership(pod, request),
            isolation=self._isolation_of(request.namespace),
        )

    def _complete(self, request: Request, reads: Mapping[str, ReadClaim]) -> Mutation:
        """Return the mutation that completes the pod templates of a new workload.

        Raises:
            ForbiddenPodError: no pod of a template could be created, whatever changes in the cluster.
            AllocationError: a field of a template holds an invalid value.
        """
        try:
            templates = pod_templates.read(request.kind, request.object)
        except UnreadableWorkloadError as error:
            return Mutation(warnings=(f"the pod templates stay as they are: {error}",))
        completed = [self._complete_template(template, request, reads) for template in templates]
        return Mutation(
            tuple(operation for each in completed for operation in each.operations),
            tuple(warning for each in completed for warning in each.warnings),
        )

    def _complete_template(self, template: Template, request: Request, reads: Mapping[str, ReadClaim]) -> Mutation:
        pod = template.pod
        if self._bound(pod, request) is not None:
            # GPUBindings may change while the template exists: they decide when each of its pods is created.
            return Mutation()
        try:
            mutated = mutate(
                pod,
                username=request.user_info.username,
                allocation=self._allocation,
                settings=self._settings,
                quotas=self._quotas(request.namespace),
                claim=self._claim(pod, request, reads),
                membership=self._membership(pod, request),
                isolation=self._isolation_of(request.namespace),
            )
        except (ForbiddenNowError, UnavailableClaimError) as error:
            return Mutation(warnings=(f"{template.field}: no pod can be created of it now: {error}",))
        except AllocationError as error:
            raise AllocationError(f"{template.field}: {error}") from None
        except ForbiddenPodError as error:
            raise ForbiddenPodError(f"{template.field}: {error}") from None
        return Mutation(
            tuple(pod_templates.completion(template, mutated)),
            tuple(f"{template.field}: {warning}" for warning in mutated.warnings),
        )

    def _bound(self, pod: Pod, request: Request) -> Granted | None:
        if self._bindings is None:
            return None
        return self._bindings.of_pod(pod.metadata.labels or {}, request.namespace)

    def _membership(self, pod: Pod, request: Request) -> Membership | None:
        if self._memberships is None:
            return None
        return self._memberships.of_pod(pod.metadata.labels or {}, request.namespace)

    def _claim(self, pod: Pod, request: Request, reads: Mapping[str, ReadClaim]) -> ClaimSpec | None:
        """Return the GpuClaim that a new pod names, as it was read or from the local copy; None if it names none.

        At most one claim is read for a review, which may have many templates.
        """
        name = mutation.claim_name(pod, username=request.user_info.username, settings=self._settings)
        if name is None:
            return None
        read = reads.get(name)
        spec = self._claims.cached(request.namespace, name) if read is None else read.spec
        if spec is not None:
            return spec
        if read is None and reads:
            raise UnavailableClaimError(f"GpuClaim {name} is not known yet; create it first")
        if read is None:
            raise UncachedClaimError(request.namespace, name)
        if read.failure:
            raise UnavailableClaimError(f"GpuClaim {name} cannot be read: {read.failure}; create the pod again")
        raise claimed_pod.missing(name, request.namespace)
