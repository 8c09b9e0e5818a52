"""The status of a GpuQueue: a view for people. Nothing decides by it but the policy that spares queues in use."""

import math
from collections.abc import Sequence
from typing import Final, Literal

from allocation import ineffective
from allocation.request import MILLI_PER_PERCENT, MILLI_PER_TFLOP
from allocation.settings import AllocationSettings
from cluster.conditions import VALID, transition_time, validity
from cluster.gpu_queue import GpuQueueStatus, QueueCondition
from scheduler.fairness.standings import Standing

_Value = Literal["True", "False"]
_WORDS: Final = {
    "Suspended": "spec.suspended is true: new pods wait",
    "NoNamespace": "spec.namespaceSelector is missing, so no pod may name the queue: {} selects all namespaces",
    "Active": "pods of the queue are placed",
}


def resource_names(settings: AllocationSettings) -> tuple[str, str, str, str, str, str]:
    """Return the names of the dimensions of a share."""
    names = settings.resources
    return names.memory, names.cores, names.count, names.tflops, "cpu", "memory"


def dominant_resource(standing: Standing, settings: AllocationSettings) -> str:
    """Return the resource of which a queue has the largest share; empty if it has nothing."""
    return resource_names(settings)[standing.share.dimension] if standing.share.used else ""


def allocated(standing: Standing, settings: AllocationSettings) -> dict[str, int]:
    """Return what the pods of a queue hold, in the units of a container, rounded up; CPU in thousandths.

    TFLOPs are left out where no pod has any, as on clusters whose models are not known.
    """
    memory, cores, cards, tflops, cpu, bytes_ = standing.use.amounts
    of_cards = (
        -(-memory // settings.memory_factor),
        -(-cores // MILLI_PER_PERCENT),
        cards,
        -(-tflops // MILLI_PER_TFLOP),
    )
    amounts = dict(zip(resource_names(settings), (*of_cards, cpu, bytes_), strict=True))
    if not tflops:
        del amounts[settings.resources.tflops]
    return amounts


def desired(
    standing: Standing,
    *,
    namespaces: int,
    generation: int,
    before: GpuQueueStatus,
    settings: AllocationSettings,
    now: str,
) -> GpuQueueStatus:
    """Return the status of a queue at the time `now`; it equals `before`, the last status, if nothing changed.

    `namespaces` is the number of namespaces that name it.
    """
    resource = dominant_resource(standing, settings)
    return GpuQueueStatus(
        observed_generation=generation,
        namespaces=namespaces,
        allocated=allocated(standing, settings),
        running=standing.use.pods,
        waiting=standing.waiting,
        share=decimals(float(standing.share)),
        weighted_share=decimals(standing.weighted_share),
        entitlement=decimals(standing.entitlement),
        dominant_resource=resource,
        conditions=(
            _condition("Active", *_active(standing), before=before.conditions, now=now),
            _condition("Overused", *_overused(standing, resource), before=before.conditions, now=now),
            _condition(
                VALID, *validity(ineffective.of_queue(standing.spec, settings)), before=before.conditions, now=now
            ),
        ),
    )


def is_overused(status: GpuQueueStatus) -> bool:
    """Whether a status says that the queue has more than its entitlement."""
    return any((each.type, each.status) == ("Overused", "True") for each in status.conditions)


def is_underused(status: GpuQueueStatus) -> bool:
    """Whether a status says that the queue has less than its entitlement, and pods that wait."""
    # With four decimals, and an entitlement of at most 1, the order of the texts is that of the numbers.
    return status.waiting > 0 and status.share < status.entitlement


def decimals(share: float) -> str:
    """Return a share as people read it."""
    return "infinite" if math.isinf(share) else f"{share:.4f}"


def _active(standing: Standing) -> tuple[_Value, str, str]:
    if standing.spec.suspended:
        reason = "Suspended"
    else:
        reason = "Active" if standing.spec.namespace_selector is not None else "NoNamespace"
    return "True" if reason == "Active" else "False", reason, _WORDS[reason]


def _overused(standing: Standing, resource: str) -> tuple[_Value, str, str]:
    is_overused = standing.is_overused
    has = f"has {decimals(float(standing.share))} of {resource}" if resource else "has nothing"
    relation = "more than" if is_overused else "within"
    message = f"{has}, {relation} its entitlement of {decimals(standing.entitlement)}"
    return ("True", "Overused", message) if is_overused else ("False", "WithinEntitlement", message)


def _condition(
    kind: Literal["Active", "Overused", "Valid"],
    status: _Value,
    reason: str,
    message: str,
    *,
    before: Sequence[QueueCondition],
    now: str,
) -> QueueCondition:
    since = transition_time(kind, status, before=before, now=now)
    return QueueCondition(kind, status, reason, message, since)
