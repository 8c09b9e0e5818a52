"""The status of a GpuClaim: what became of the pods that name it. A view for people; nothing decides by it."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from cluster.conditions import transition_time
from cluster.gpu_claim import ClaimCondition, GpuClaimStatus
from scheduler.claims.users import ORDER, ClaimUser

_ALLOCATED: Final = "Allocated"
_MAX_ALLOCATED: Final = 4096
_MAX_MESSAGE: Final = 1024
_NO_POD: Final = ClaimUser("", "", reason="NoPod", message="no pod names this claim")


def desired(users: Iterable[ClaimUser], *, before: GpuClaimStatus, now: str) -> GpuClaimStatus:
    """Return the status of a claim with `users`, at the time `now`.

    It equals `before`, the last status, if nothing changed.
    """
    by_age = sorted(users, key=lambda user: (user.created, user.pod))
    last = min(by_age, key=lambda user: ORDER.index(user.phase), default=_NO_POD)
    placed = [user for user in by_age if user.node]
    value: Literal["True", "False"] = "True" if last.phase == "Bound" else "False"
    since = transition_time(_ALLOCATED, value, before=before.conditions, now=now)
    message = last.message[:_MAX_MESSAGE]
    return GpuClaimStatus(
        phase=last.phase,
        node_name=placed[0].node if placed else "",
        gpu_ids=placed[0].cards if placed else (),
        allocated=_joined(placed),
        message=message,
        conditions=(ClaimCondition(_ALLOCATED, value, last.reason, message, since),),
    )


def patch(status: GpuClaimStatus) -> dict[str, object]:
    """Return a status as a merge patch: fields without a value are removed."""
    fields: dict[str, object] = msgspec.to_builtins(status)
    return {name: value or None for name, value in fields.items()}


def _joined(placed: Sequence[ClaimUser]) -> str:
    """Return node and cards of each pod, of as many as the field has room for."""
    text = ""
    for user in placed:
        longer = f"{text}{';' if text else ''}{user.node}:{','.join(map(str, user.cards))}"
        if len(longer) > _MAX_ALLOCATED:
            break
        text = longer
    return text
