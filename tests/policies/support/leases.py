"""Leases of cards, as the leader would create them."""

from __future__ import annotations

from typing import Any

from scheduler.fenced_api import with_token
from scheduler.leases.device_lease import LeasedPod, planned
from tests.scheduler.support.leasing import allocation


def card_lease(index: int, *, node: str, token: str) -> dict[str, Any]:
    """Return the Lease of a card that a pod holds which cannot be read, so that a scheduler would keep it."""
    (plan,) = planned(LeasedPod("none", "none", "none", allocation(index, node=node)), None)
    body = with_token(plan.body(unix=0.0), token)
    body["metadata"]["annotations"].pop("gpu.scheduling/pod-ref")
    body["metadata"]["annotations"]["gpu.scheduling/node"] = node
    return body
