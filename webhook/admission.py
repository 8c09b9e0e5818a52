"""One review answered: read, decided, counted, logged. The HTTP around it is in `webhook.routes`."""

import logging
import time
from collections.abc import Callable

import msgspec

from allocation.errors import AllocationError
from allocation.settings import AllocationSettings
from webhook import debugging, review
from webhook.metrics import Metrics, Outcome
from webhook.mutation import Mutation, Quotas, mutate
from webhook.refusal import RefusedError
from webhook.review import Pod, Request, UnreadablePodError, UnreadableReviewError
from webhook.settings import WebhookSettings

log = logging.getLogger(__name__)


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
        self._allocation = allocation
        self._settings = settings
        self._metrics = metrics

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
            self._metrics.reviews.labels(line.outcome).inc()
            self._metrics.seconds.observe(seconds)
            what = line.pod or "an unreadable one"
            log.info("review of pod %s: %s", what, line.outcome, extra=msgspec.to_builtins(line))

    def _answer(self, body: bytes, line: _Line) -> bytes:
        read = review.decode_review(body)
        request = read.request
        line.review, line.pod, line.user = request.uid, f"{request.namespace}/", request.user_info.username
        decide = self._decision(request)
        if decide is None:
            line.outcome = "untouched"
            return review.allow(read)
        try:
            pod = review.decode_pod(request.object)
            line.pod += pod.metadata.name or pod.metadata.generate_name
            mutation = decide(pod)
        except UnreadablePodError as error:
            line.outcome, line.reason = "malformed", str(error)
            return review.refuse(read, message=line.reason, code=400)
        except AllocationError as error:
            line.outcome, line.reason = "refused", str(error)
            return review.refuse(read, message=line.reason, code=400)
        except RefusedError as error:
            line.outcome, line.reason = "refused", str(error)
            return review.refuse(read, message=line.reason, code=403)
        line.outcome = "mutated" if mutation.operations else "untouched"
        line.operations, line.warnings = len(mutation.operations), len(mutation.warnings)
        return review.allow(read, operations=mutation.operations, warnings=mutation.warnings)

    def _decision(self, request: Request) -> Callable[[Pod], Mutation] | None:
        """Answer what decides about the pod of a request, None where it is no affair of ours."""
        match request.kind.kind, request.sub_resource, request.operation:
            case "Pod", "", "CREATE":
                return lambda pod: mutate(
                    pod,
                    username=request.user_info.username,
                    allocation=self._allocation,
                    settings=self._settings,
                    quotas=self._quotas(request.namespace),
                )
            case "Pod", "ephemeralcontainers", "UPDATE":
                return lambda pod: debugging.mutate(pod, before=review.decode_pod(request.old_object))
            case _:
                return None
