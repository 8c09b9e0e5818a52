"""The GpuClaims of all namespaces, and the pods that name them."""

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator

import msgspec

from allocation import names
from allocation.allocation import Allocation
from allocation.claim import ClaimSpec
from allocation.errors import AllocationError
from allocation.wire import record
from cluster.gpu_claim import GpuClaim, GpuClaimStatus, Phase
from cluster.metadata import timestamp
from scheduler.claims.status import desired
from scheduler.claims.status_queue import ClaimName, StatusQueue
from scheduler.claims.users import ClaimUser, ClaimUsers, Reason
from scheduler.objects import Pod


class Claims:
    """The claims by namespace and name, each with the live pods that name it.

    Attributes:
        statuses: the claims whose status is to be written, since `publish` was called.
    """

    def __init__(self) -> None:
        self.statuses = StatusQueue()
        self._claims: dict[ClaimName, GpuClaim] = {}
        self._users: defaultdict[ClaimName, ClaimUsers] = defaultdict(ClaimUsers)
        self._claim_of: dict[str, ClaimName] = {}
        """By the UID of the pod."""
        self._written: dict[ClaimName, GpuClaimStatus] = {}
        self._is_publishing = False

    def find(self, namespace: str, name: str) -> ClaimSpec | None:
        """Return the spec of a claim, or None if it does not exist."""
        claim = self._claims.get((namespace, name))
        return claim.spec if claim is not None else None

    def uid(self, name: ClaimName) -> str:
        """Return the UID of a claim; empty if it does not exist."""
        claim = self._claims.get(name)
        return claim.metadata.uid if claim is not None else ""

    def users(self, claim: GpuClaim) -> Collection[str]:
        """Return the UIDs of the pods that name a claim."""
        return tuple(self._users.get(_name(claim), ()))

    def __iter__(self) -> Iterator[GpuClaim]:
        """Iterate over the claims."""
        return iter(tuple(self._claims.values()))

    def pods(self, claim: GpuClaim) -> ClaimUsers | None:
        """Return the pods that name a claim, or None if there are none of them."""
        return self._users.get(_name(claim))

    def phases(self) -> Counter[Phase]:
        """Return the number of claims in each phase."""
        return Counter(self._users[name].phase if name in self._users else "Pending" for name in self._claims)

    # ---- claims ----------------------------------------------------------------------------------------------------

    def set(self, claim: GpuClaim) -> bool:
        """Set a claim; return whether it gives something else than before."""
        name = _name(claim)
        old = self._claims.get(name)
        if old is not None and old.metadata.uid != claim.metadata.uid:
            self.drop(old)
        self._claims[name] = claim
        if name not in self._written:
            self._written[name] = claim.status
            self._put(name)
        return old is None or old.spec != claim.spec

    def drop(self, claim: GpuClaim) -> None:
        """Forget a deleted claim."""
        name = _name(claim)
        self._claims.pop(name, None)
        self._written.pop(name, None)
        self.statuses.drop(name)

    # ---- pods ------------------------------------------------------------------------------------------------------

    def set_pod(self, pod: Pod) -> None:
        """Set the state of a live pod, which may name a claim and may have a node."""
        claim = pod.metadata.annotations.get(names.CLAIM)
        if claim is None:
            return
        name = (pod.metadata.namespace, claim)
        if self._claim_of.get(pod.uid) != name:
            self.drop_pod(pod.uid)
        self._claim_of[pod.uid] = name
        user = self._users[name].get(pod.uid)
        if pod.spec.node_name:
            if user is None or user.reason != "DeviceMissing":
                self._set_user(pod.uid, _bound(pod))
        elif user is None:
            meta = pod.metadata
            self._set_user(pod.uid, _user(meta.name, meta.creation_timestamp or "", "Pending", "Waiting", " waits"))

    def drop_pod(self, uid: str) -> None:
        """Forget a pod that is finished or deleted."""
        name = self._claim_of.get(uid)
        if name is not None:
            self._set_user(uid, None)
            del self._claim_of[uid]
            if not self._users[name]:
                del self._users[name]

    def set_waiting(self, uid: str, why: str) -> None:
        """Note why no node takes a pod now; a pod whose reservation was lost is Failed until it has another one."""
        old = self._find_user(uid)
        if old is not None and old.phase == "Pending":
            self._set_user(uid, _user(old.pod, old.created, "Pending", "Waiting", f": {why}"))

    def set_reserved(self, uid: str, allocation: Allocation) -> None:
        """Note the cards that are reserved for a pod."""
        old = self._find_user(uid)
        if old is not None:
            is_leased = allocation.claim is not None and allocation.claim.is_leased
            user = _user(
                old.pod, old.created, "Reserved", "LeasesHeld" if is_leased else "Reserved", " has cards, not yet bound"
            )
            cards = allocation.indexes()
            self._set_user(uid, msgspec.structs.replace(user, node=allocation.node, cards=cards))

    def set_failed(self, uid: str, reason: Reason, why: str) -> None:
        """Note that the reservation for a pod was lost."""
        old = self._find_user(uid)
        if old is not None:
            self._set_user(uid, _user(old.pod, old.created, "Failed", reason, f": {why}"))

    def set_restored(self, pod: Pod) -> None:
        """Note that a running pod has all its cards again."""
        if self._find_user(pod.uid) is not None:
            self._set_user(pod.uid, _bound(pod))

    def _find_user(self, uid: str) -> ClaimUser | None:
        name = self._claim_of.get(uid)
        return self._users[name].get(uid) if name is not None else None

    def _set_user(self, uid: str, user: ClaimUser | None) -> None:
        name = self._claim_of[uid]
        users = self._users[name]
        if users.get(uid) == user:
            return
        if name in self.statuses and users.phase_after(uid, user) != users.phase:
            self.statuses.keep(name, self._status(name))
        users.set(uid, user)
        self._put(name)

    # ---- statuses --------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Queue the statuses of all claims that are not up to date, and from now on each that changes."""
        self._is_publishing = True
        for name in self._claims:
            self._put(name)

    def next_status(self, name: ClaimName, earlier: GpuClaimStatus | None) -> GpuClaimStatus | None:
        """Return the `earlier` or else the current status of a claim, to write it; None if it has it, or is gone."""
        if name not in self._claims:
            return None
        status = earlier or self._status(name)
        return status if status != self._written[name] else None

    def mark_written(self, name: ClaimName, status: GpuClaimStatus, *, uid: str) -> None:
        """Note that the API server has a status of the claim with `uid`, which another one may have replaced."""
        if self.uid(name) == uid:
            self._written[name] = status

    def write_again(self, name: ClaimName, status: GpuClaimStatus, *, uid: str) -> None:
        """Queue again a status of the claim with `uid` that could not be written."""
        if self.uid(name) == uid:
            self.statuses.put_back(name, status)

    def _put(self, name: ClaimName) -> None:
        if self._is_publishing and name in self._claims:
            self.statuses.put(name)

    def _status(self, name: ClaimName) -> GpuClaimStatus:
        now = timestamp(time.time())
        users = self._users[name].values() if name in self._users else ()
        return desired(users, before=self._written[name], now=now)


def _name(claim: GpuClaim) -> ClaimName:
    return claim.metadata.namespace, claim.metadata.name


def _user(pod: str, created: str, phase: Phase, reason: Reason, what: str) -> ClaimUser:
    return ClaimUser(pod, created, phase, reason, f"pod {pod}{what}")


def _bound(pod: Pod) -> ClaimUser:
    meta = pod.metadata
    user = _user(meta.name, meta.creation_timestamp or "", "Bound", "Bound", f" is bound to {pod.spec.node_name}")
    try:
        allocation = record.of_annotations(meta.annotations)
    except AllocationError:
        allocation = None
    cards = allocation.indexes() if allocation is not None else ()
    return msgspec.structs.replace(user, node=pod.spec.node_name, cards=cards)
