"""The last observed state of a pod."""

from collections.abc import Mapping
from typing import Any

from chaos.claim import ANNOTATION, Claim
from chaos.share import ALLOCATION, SCHEDULER, Allocation, Request, UnreadableError, Use, allocation, requests, uses

_GANG = "gpu.scheduling/gang"
_ENDED = frozenset({"Succeeded", "Failed"})
_EVICTED = frozenset({"EvictionByEvictionAPI", "PreemptionByScheduler"})


class Pod:
    """The last observed state of a pod.

    Attributes:
        name: with its namespace.
        node: empty for a pod without a node.
        text: its allocation annotation as written.
        ended: whether it has succeeded or failed.
        gang: the gang that it belongs to; empty for none.
        is_pending: whether the scheduler is to place it, now or together with others.
        is_waiting: whether the scheduler is to place it now, whatever becomes of other pods.
        unreadable: what cannot be read of it; empty if all can.
        claim_name: the GpuClaim that it names, in its namespace; None for a pod without one.
        claim: what that claim gives; None if the claim was never observed.
        requests: what each of its GPU containers requests, by itself or by the claim.
        allocation: its allocation.
        uses: what it takes of each card, by UUID.
        version: of the cluster, in which it was first observed with a node; 0 without one.
        priority: of the pod.
        nominated: the node on which others are evicted for it; empty if none are.
        is_evicted: whether it is deleted by an Eviction.
        fitting_since: since when it waits although a node has free cards for it.
    """

    def __init__(self, content: dict[str, Any], claims: Mapping[tuple[str, str], Claim]) -> None:
        metadata, spec = content["metadata"], content["spec"]
        annotations = metadata.get("annotations", {})
        self.name = f"{metadata['namespace']}/{metadata['name']}"
        self.node: str = spec.get("nodeName", "")
        self.text: str | None = annotations.get(ALLOCATION)
        self.ended = content.get("status", {}).get("phase") in _ENDED
        self.version = int(metadata.get("resourceVersion", 0)) if self.node else 0
        self.claim_name: str | None = annotations.get(ANNOTATION)
        self.claim = claims.get((metadata["namespace"], self.claim_name or ""))
        self.unreadable = ""
        self.requests: list[Request] = []
        self.allocation: Allocation | None = None
        self.uses: dict[str, Use] = {}
        try:
            self.requests, self.allocation = requests(content), allocation(content)
            if self.allocation is not None and self.node and not self.ended:
                self.uses = uses(content, self.allocation)
        except UnreadableError as error:
            self.unreadable = str(error)
        if self.claim is not None:
            self.requests = [self.claim.request(each.container) for each in self.requests]
        self.gang: str = annotations.get(_GANG, "")
        self.is_pending = (
            not self.node
            and not self.ended
            and not metadata.get("deletionTimestamp")
            and not spec.get("schedulingGates")
            and spec.get("schedulerName") == SCHEDULER
            and (self.claim_name is None or self.claim is not None)
        )
        self.is_waiting = self.is_pending and not self.gang
        status = content.get("status", {})
        self.priority: int = spec.get("priority", 0)
        self.nominated: str = status.get("nominatedNodeName", "")
        self.is_evicted = any(each.get("reason") in _EVICTED for each in status.get("conditions", ()))
        self.fitting_since: float | None = None

    @property
    def is_exclusive(self) -> bool:
        """Whether no other pod may hold one of its cards."""
        return self._exclusivity == "Exclusive"

    @property
    def leased(self) -> frozenset[str]:
        """The cards for each of which there must be a Lease with the pod's UID."""
        return frozenset(self.uses) if self._exclusivity in {"Exclusive", "MIG"} else frozenset()

    @property
    def has_instances(self) -> bool:
        """Whether its cards are MIG instances, of which a pod gets at least what it requests."""
        return self._exclusivity == "MIG"

    @property
    def shape(self) -> tuple[Request, ...]:
        """What decides whether the pod fits: pods of one shape fit the same nodes; a claim counts once."""
        shape = tuple(request._replace(container="") for request in self.requests)
        return shape[:1] if self.claim is not None else shape

    @property
    def _exclusivity(self) -> str:
        mark = self.allocation.mark if self.allocation is not None else None
        return mark.exclusivity if mark is not None else ""
