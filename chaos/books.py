"""The checker's own books: every pod and card as the API showed them, and every promise that was broken.

The module does no I/O. It takes changes in the order in which the API server made them, and it shares no code with the
scheduler: it reads only the objects themselves.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from chaos.claim import Claim, read
from chaos.fleet import Fleet, fits
from chaos.gangs import Gangs
from chaos.leases import CardLeases
from chaos.pod import Pod
from chaos.share import Allocation, Request, Use
from chaos.violation import Kind, Violation


class Books:
    """The pods, what they hold, and the promises that were broken.

    Attributes:
        fleet: nodes and cards.
        claims: what each GpuClaim gives, by namespace and name.
        leases: the Leases of cards.
        violations: in the order in which they were observed.
        placed: number of pods ever observed with a node.
        slowest: longest time in seconds that a pod waited although a node had free cards for it all the time.
    """

    def __init__(self, *, clock: Callable[[], float], patience_seconds: float, lease_seconds: float) -> None:
        """Report what lasts too long by `clock`.

        A pod may wait for `patience_seconds` while a node has free cards for it, and the Leases of cards may differ
        from the pods for `lease_seconds`.
        """
        self.fleet = Fleet()
        self.claims: dict[tuple[str, str], Claim] = {}
        self.leases = CardLeases(report=self._report, patience_seconds=lease_seconds)
        self.violations: list[Violation] = []
        self.placed = 0
        self.slowest = 0.0
        self._gangs = Gangs(report=self._report, patience_seconds=patience_seconds)
        self._clock = clock
        self._patience = patience_seconds
        self._pods: dict[str, Pod] = {}
        self._used: dict[str, Use] = {}
        self._late: set[str] = set()
        self._nominated: dict[str, tuple[str, int]] = {}

    # ---- observations -----------------------------------------------------------------------------------------------

    def set_claim(self, content: dict[str, Any]) -> None:
        """Record a GpuClaim. It is kept for as long as the books: pods have its cards even after it is deleted."""
        metadata = content["metadata"]
        self.claims[metadata["namespace"], metadata["name"]] = read(content)

    def set_pod(self, content: dict[str, Any]) -> None:
        """Record a new or changed pod."""
        uid = content["metadata"]["uid"]
        was_evicted = uid in self._pods and self._pods[uid].is_evicted
        self._check_cards(self._record(content))
        if self._pods[uid].is_evicted and not was_evicted:
            self._check_eviction(self._pods[uid])

    def drop_pod(self, content: dict[str, Any]) -> None:
        """Record a deleted pod. Its last state counts as well: the pod may have been bound since the previous one."""
        self.set_pod(content)
        self._forget(content["metadata"]["uid"])

    def replace_pods(self, contents: Iterable[dict[str, Any]]) -> None:
        """Replace all pods by a list; what happened between the last event and the list is unknown."""
        now = {content["metadata"]["uid"]: content for content in contents}
        for uid in self._pods.keys() - now.keys():
            self._forget(uid)
        touched = [uuid for content in now.values() for uuid in self._record(content)]
        self._check_cards(touched)

    def tick(self) -> None:
        """Check for pods that wait although a node has free cards for them, and the Leases; call it at intervals."""
        now, fitting = self._clock(), self._fitting()
        self.leases.tick(self._pods, nodes=self.fleet.nodes, now=now)
        self._gangs.tick(self._pods.values(), now=now)
        for uid, pod in self._pods.items():
            if uid not in fitting:
                pod.fitting_since = None
                continue
            pod.fitting_since = now if pod.fitting_since is None else pod.fitting_since
            waited = now - pod.fitting_since
            self.slowest = max(self.slowest, waited)
            if waited > self._patience and uid not in self._late:
                self._late.add(uid)
                self._report(
                    Kind.WAITS, pod.name, f"for {waited:.0f} s, while a node had free cards for it all the time"
                )

    # ---- queries ----------------------------------------------------------------------------------------------------

    def used(self) -> dict[str, Use]:
        """Return the use of every card ever observed, by UUID; a pod with an Exclusive claim uses all of its cards."""
        exclusive = {uuid for pod in self._pods.values() if pod.is_exclusive for uuid in pod.uses}
        return {
            uuid: card.total if uuid in exclusive else self._used.get(uuid, Use())
            for uuid, card in self.fleet.cards.items()
        }

    def fitting(self) -> list[str]:
        """Return the names of the pods that wait although a node has free cards for them."""
        return [self._pods[uid].name for uid in self._fitting()]

    def bound(self) -> list[str]:
        """Return the names of the pods that have a node and have not ended."""
        return [pod.name for pod in self._pods.values() if pod.node and not pod.ended]

    # ---- checks -----------------------------------------------------------------------------------------------------

    def _fitting(self) -> set[str]:
        """Return the UIDs of the pods that wait although a node has free cards for them.

        What becomes free on a nominated node is kept for its nominee, so for others of no higher priority it is full.
        """
        waiting = [(uid, pod) for uid, pod in self._pods.items() if pod.is_waiting]
        free = self.fleet.free(self.used(), now=self._clock()) if waiting else {}
        nominees = [(uid, pod) for uid, pod in waiting if pod.nominated]
        known: dict[tuple[tuple[Request, ...], frozenset[str]], bool] = {}
        fitting = set()
        for uid, pod in waiting:
            kept = frozenset(
                each.nominated for other, each in nominees if other != uid and each.priority >= pod.priority
            )
            key = pod.shape, kept
            if key not in known:
                known[key] = any(fits(pod.shape, cards) for node, cards in free.items() if node not in kept)
            if known[key]:
                fitting.add(uid)
        return fitting

    def _record(self, content: dict[str, Any]) -> Iterable[str]:
        """Record a pod; return the cards of which it takes more than before."""
        uid, new = content["metadata"]["uid"], Pod(content, self.claims)
        old = self._pods.get(uid)
        self._check_pod(new)
        if old is not None:
            self._check_change(old, new)
            new.fitting_since = old.fitting_since if new.is_waiting else None
            new.version = old.version or new.version
        if new.node:
            self._nominated.pop(uid, None)
        elif new.nominated:  # kept when the pod is deleted: its victims may be evicted later
            self._nominated[uid] = new.nominated, new.priority
        if new.node and (old is None or not old.node):
            self.placed += 1
        before = old.uses if old is not None else {}
        for uuid in before.keys() | new.uses.keys():
            now = self._used.get(uuid, Use()).minus(before.get(uuid, Use())).plus(new.uses.get(uuid, Use()))
            self._used[uuid] = now
        self._pods[uid] = new
        return [uuid for uuid, use in new.uses.items() if not use.fits(before.get(uuid, Use()))]

    def _forget(self, uid: str) -> None:
        for uuid, use in self._pods.pop(uid).uses.items():
            self._used[uuid] = self._used[uuid].minus(use)
        self._late.discard(uid)

    def _check_change(self, old: Pod, new: Pod) -> None:
        if old.node and new.node != old.node:
            self._report(Kind.BOUND_TWICE, new.name, f"its node was {old.node} and is now {new.node or 'empty'}")
        if old.text is not None and new.text != old.text:
            self._report(Kind.BOUND_TWICE, new.name, f"its allocation was {old.text} and is now {new.text}")

    def _check_eviction(self, victim: Pod) -> None:
        """Check that a pod of higher priority needs the node of an evicted one, or that of another pod of its gang."""
        together = [each.node for each in self._pods.values() if victim.gang and each.gang == victim.gang]
        nodes = {victim.node, *together}
        if not any(node in nodes and priority > victim.priority for node, priority in self._nominated.values()):
            self._report(Kind.WRONG_VICTIM, victim.name, f"its priority is {victim.priority}, on {victim.node}")

    def _check_pod(self, pod: Pod) -> None:
        if pod.unreadable:
            self._report(Kind.WRONG_ALLOCATION, pod.name, pod.unreadable)
        elif not pod.node and pod.allocation is not None:
            self._report(Kind.NO_NODE, pod.name, f"its allocation is {pod.text}")
        elif pod.node and not pod.ended and pod.requests and pod.allocation is None:
            self._report(Kind.NO_ALLOCATION, pod.name, f"it is on {pod.node}")
        elif pod.node and not pod.ended and pod.allocation is not None:
            for mismatch in self._mismatches(pod, pod.allocation):
                self._report(Kind.WRONG_ALLOCATION, pod.name, f"{mismatch}: {pod.text}")

    def _mismatches(self, pod: Pod, allocated: Allocation) -> Iterator[str]:
        """Yield each difference between an allocation and the pod's request."""
        if allocated.node != pod.node:
            yield f"the pod is on {pod.node}"
        yield from _claim_mismatches(pod, allocated)
        if extra := allocated.containers.keys() - {request.container for request in pod.requests}:
            yield f"{sorted(extra)} requested no GPU"
        for request in pod.requests:
            shares = allocated.containers.get(request.container, [])
            if len({uuid for uuid, _ in shares}) != request.cards or len(shares) != request.cards:
                yield f"{request.container} requested {request.cards} cards"
            for uuid, use in shares:
                card = self.fleet.cards.get(uuid)
                if card is not None and card.node != pod.node:
                    yield f"{uuid} is a card of {card.node}"
                if card is not None and use != request.on(card.total) and not pod.has_instances:
                    yield f"{request.container} requested {request.on(card.total)} of {uuid}"

    def _check_cards(self, uuids: Iterable[str]) -> None:
        """Check the cards of which a pod takes more than before."""
        for uuid in uuids:
            card, used = self.fleet.cards.get(uuid), self._used[uuid]
            holders = [pod for pod in self._pods.values() if uuid in pod.uses]
            names = sorted(pod.name for pod in holders)
            if len(holders) > 1 and any(pod.is_exclusive for pod in holders):
                self._report(Kind.SHARED_EXCLUSIVE, uuid, f"it is allocated to {names}")
            if card is None:
                self._report(Kind.WRONG_ALLOCATION, uuid, "it is allocated, but no node reports it")
            elif not used.fits(card.total):
                self._report(Kind.OVER_CAPACITY, uuid, f"its capacity is {card.total}, {used} is allocated, to {names}")

    def _report(self, kind: Kind, subject: str, what: str) -> None:
        violation = Violation(kind, subject, what)
        if violation not in self.violations:
            self.violations.append(violation)


def _claim_mismatches(pod: Pod, allocated: Allocation) -> Iterator[str]:
    """Yield each difference between the claim that an allocation is for and the one that the pod names."""
    if pod.claim_name is not None and pod.claim is None:
        yield f"its GpuClaim {pod.claim_name} does not exist"
    elif allocated.mark != (pod.claim.mark if pod.claim is not None else None):
        yield f"its GpuClaim is {pod.claim.mark if pod.claim is not None else 'not set'}"
    if allocated.mark is not None and len({tuple(shares) for shares in allocated.containers.values()}) > 1:
        yield "the containers of a claim have different cards"
