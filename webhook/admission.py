"""One review answered: read, decided, counted, logged. The HTTP around it is in `webhook.routes`."""

import logging
import time
from collections.abc import Callable
from typing import Final

import msgspec

from allocation.errors import AllocationError
from allocation.settings import AllocationSettings
from webhook import debugging, review
from webhook.decisions import UNTOUCHED, Decision, Decisions, decided
from webhook.metrics import OUTCOMES, Metrics, Outcome
from webhook.mutation import Quotas
from webhook.refusal import RefusedError
from webhook.review import Request, UnreadablePodError, UnreadableReviewError
from webhook.settings import WebhookSettings

log = logging.getLogger(__name__)

_OURS: Final = frozenset((("", "CREATE"), ("ephemeralcontainers", "UPDATE")))
"""Subresource and operation of the requests for pods that admission has a say in."""


class _Line(msgspec.Struct, omit_defaults=True):
    """What the log says about one review; `review` is its UID."""

    review: str = ""
    pod: str = ""
    user: str = ""
    outcome: Outcome = "error"
    operations: int = 0
    warnings: int = 0
    reason: str = ""
    milliseconds: float = 0.0


class Admission:
    """Answers reviews by the rules that it was given."""

    def __init__(
        self,
        *,
        allocation: AllocationSettings,
        settings: WebhookSettings,
        metrics: Metrics,
        quotas: Callable[[str], Quotas],
    ) -> None:
        """Answer by these settings; `quotas` answers the `spec.hard` of a namespace's quotas by their names."""
        self._quotas = quotas
        self._decisions = Decisions(allocation=allocation, settings=settings)
        self._count = {outcome: metrics.reviews.labels(outcome).inc for outcome in OUTCOMES}
        self._observe = metrics.seconds.observe

    def answer(self, body: bytes) -> bytes:
        """Answer the AdmissionReview `body` with another.

        Raises:
            UnreadableReviewError: it is none; there is nothing to answer under.
        """
        begin = time.perf_counter()
        line = _Line()
        try:
            return self._answer(body, line)
        except UnreadableReviewError as error:
            line.outcome, line.reason = "malformed", str(error)
            raise
        finally:
            seconds = time.perf_counter() - begin
            line.milliseconds = round(seconds * 1000, 3)
            self._count[line.outcome]()
            self._observe(seconds)
            what = line.pod or "an unreadable one"
            log.info("review of pod %s: %s", what, line.outcome, extra=msgspec.to_builtins(line))

    def _answer(self, body: bytes, line: _Line) -> bytes:
        read = review.decode_review(body)
        request = read.request
        line.review, line.pod, line.user = request.uid, f"{request.namespace}/", request.user_info.username
        try:
            decision = self._decide(request, line)
        except UnreadablePodError as error:
            line.outcome, line.reason = "malformed", str(error)
            return review.refuse(read, message=line.reason, code=400)
        except AllocationError as error:
            line.outcome, line.reason = "refused", str(error)
            return review.refuse(read, message=line.reason, code=400)
        except RefusedError as error:
            line.outcome, line.reason = "refused", str(error)
            return review.refuse(read, message=line.reason, code=403)
        line.outcome = "mutated" if decision.operations else "untouched"
        line.operations, line.warnings = decision.operations, len(decision.warnings)
        return review.allow(read, change=decision.patch, warnings=decision.warnings)

    def _decide(self, request: Request, line: _Line) -> Decision:
        """Answer what becomes of the pod of a request; nothing where it is no affair of ours."""
        if request.kind.kind != "Pod" or (request.sub_resource, request.operation) not in _OURS:
            return UNTOUCHED
        pod = review.decode_pod(request.object)
        line.pod += pod.metadata.name or pod.metadata.generate_name
        if request.sub_resource:
            return decided(debugging.mutate(pod, before=review.decode_pod(request.old_object)))
        return self._decisions.about(pod, username=line.user, quotas=self._quotas(request.namespace))
