"""Whether a running pod may have another size, by the scheduler's own check; for autoscalers and people."""

from collections.abc import Mapping

import msgspec

from allocation.adjustment import Amounts, ScalingQuotaExceededError, remaining
from allocation.errors import AllocationError
from allocation.wire import resize_record
from allocation.wire.resize_record import Wish
from scheduler.api.adjustment_types import AdjustmentAnswer, AdjustmentQuestion, AmountsLeft
from scheduler.api.responses import HttpError
from scheduler.objects import Pod
from scheduler.resize.evaluation import evaluate
from scheduler.state.cluster_state import ClusterState


def read_question(body: bytes) -> AdjustmentQuestion:
    """Read which pod is to have which size.

    Raises:
        HttpError: 400, the body is something else.
    """
    try:
        return msgspec.json.decode(body, type=AdjustmentQuestion)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HttpError(
            400, f'the body must be {{"namespace":…,"pod":…,"resize":{{"CONTAINER":{{"gpumem":6000}}}}}}: {error}'
        ) from None


def read_wish(body: bytes) -> Wish:
    """Read a size, in the form of the annotation.

    Raises:
        HttpError: 400, the body is something else.
    """
    try:
        return resize_record.decode_wish(body.decode())
    except (AllocationError, UnicodeDecodeError) as error:
        raise HttpError(400, str(error)) from None


def answer(state: ClusterState, pod: Pod, wish: Wish) -> AdjustmentAnswer:
    """Return whether a pod may have a size. Run it while `ClusterState.turn` is held."""
    try:
        change = evaluate(state, pod, pod.metadata.annotations, wish, dry_run=True)
    except ScalingQuotaExceededError as error:
        return AdjustmentAnswer(
            fits=False, reason="ScalingQuotaExceeded", message=str(error), remaining=_left(error.remaining)
        )
    except AllocationError as error:
        return AdjustmentAnswer(fits=False, reason="ResizeRefused", message=str(error))
    if change is None:
        return AdjustmentAnswer(fits=True, remaining=_left(remaining(state.ledger, pod.uid)))
    return AdjustmentAnswer(fits=True, remaining=_left(change.adjustment.remaining))


def _left(amounts: Mapping[str, Amounts]) -> dict[str, AmountsLeft]:
    return {uuid: AmountsLeft(each.memory_mib, each.cores) for uuid, each in sorted(amounts.items())}
