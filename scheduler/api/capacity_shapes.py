"""The shapes that are counted without a pod: a whole card, and the slices that most pods have.

They are pods of a namespace with nothing but the request of one container, opted in by their own label. They request no
CPU and no memory of the node, so what CPU or memory strands is in the count; `stranded` has it.
"""

from collections import Counter
from typing import Any, Final

import msgspec

from allocation.ledger.ledger import Reservation
from allocation.names import INJECTION_LABEL, MAX_NAME_LENGTH
from allocation.request import MILLI_PER_PERCENT
from allocation.settings import AllocationSettings
from allocation.steps import Steps
from scheduler.api.request_body import Manifests
from scheduler.state.cluster_state import ClusterState

WHOLE_CARD: Final = "whole card"
_SLICES: Final = 3
"""How many sizes of slices are counted."""
_PODS: Final = 1_000
"""Reservations that are read in one step."""


class Shape(msgspec.Struct, frozen=True):
    """A pod that could be created, with the name of its shape."""

    name: str
    manifests: Manifests


def standard(state: ClusterState, namespace: str, *, own_only: bool) -> Steps[tuple[Shape, ...]]:
    """Return the shapes as pods of `namespace`; `own_only` takes the slices from the pods of this namespace only."""
    names, settings = state.settings.resources, state.settings
    sizes: Counter[tuple[int, int]] = Counter()
    for number, reservation in enumerate(state.ledger.snapshot().values(), start=1):
        if number % _PODS == 0:
            yield
        size = _slice(state, reservation)
        if size is not None and (not own_only or state.quotas.counted.owner(reservation.uid) == namespace):
            sizes[size] += 1
    most = sorted(sizes, key=lambda size: (-sizes[size], size))[:_SLICES]
    whole = {names.memory_percentage: "100", names.cores: "100"}
    return (
        Shape(WHOLE_CARD, _pod("whole-card", namespace, {names.count: "1", **whole})),
        *(Shape(_name(size), _pod("slice", namespace, {names.count: "1", **_limits(size, settings)})) for size in most),
    )


def name_of(manifests: Manifests) -> str:
    """Return the name of the shape of a pod that a user names: that of the pod."""
    metadata = manifests.pod.get("metadata")
    name = (metadata.get("name") or metadata.get("generateName")) if isinstance(metadata, dict) else None
    return name[:MAX_NAME_LENGTH] if isinstance(name, str) else "pod"


def _slice(state: ClusterState, reservation: Reservation) -> tuple[int, int] | None:
    """Return the MiB and millicards of a pod with a slice of one card; None for any other reservation."""
    if not reservation.is_pod or len(reservation.charges) != 1:
        return None
    (charge,) = reservation.charges
    position = state.ledger.position(charge.uuid)
    if charge.whole or charge.parent or position is None:
        return None
    if charge.memory_mib >= state.ledger.facts(position[0]).whole_mib[position[1]]:
        return None
    return charge.memory_mib, charge.cores


def _name(size: tuple[int, int]) -> str:
    memory_mib, cores = size
    return f"{memory_mib} MiB, {cores // MILLI_PER_PERCENT} %" if cores else f"{memory_mib} MiB"


def _limits(size: tuple[int, int], settings: AllocationSettings) -> dict[str, str]:
    """Return what a user writes for a slice, rounded up to units of the resources."""
    memory_mib, cores = size
    limits = {settings.resources.memory: str(-(-memory_mib // settings.memory_factor))}
    if cores:
        limits[settings.resources.cores] = str(-(-cores // MILLI_PER_PERCENT))
    return limits


def _pod(name: str, namespace: str, limits: dict[str, str]) -> Manifests:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": {INJECTION_LABEL: "enabled"}}
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    return Manifests({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}})
