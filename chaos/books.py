"""The checker's own books: every pod and card as the API showed them, and every promise that was broken.

The module does no I/O. It takes changes in the order in which the API server made them, and it shares no code with the
scheduler: it reads only the objects themselves.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from chaos.fleet import Fleet, fits
from chaos.share import ALLOCATION, SCHEDULER, Allocation, Request, UnreadableError, Use, allocation, requests, uses
from chaos.violation import Kind, Violation

_ENDED = frozenset({"Succeeded", "Failed"})


class _Pod:
    """The last observed state of a pod."""

    def __init__(self, content: dict[str, Any]) -> None:
        metadata, spec = content["metadata"], content["spec"]
        self.name = f"{metadata['namespace']}/{metadata['name']}"
        self.node: str = spec.get("nodeName", "")
        self.text: str | None = metadata.get("annotations", {}).get(ALLOCATION)
        self.ended = content.get("status", {}).get("phase") in _ENDED
        self.is_waiting = (
            not self.node
            and not self.ended
            and not metadata.get("deletionTimestamp")
            and not spec.get("schedulingGates")
            and spec.get("schedulerName") == SCHEDULER
        )
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
        self.fitting_since: float | None = None

    @property
    def shape(self) -> tuple[Request, ...]:
        """What decides whether the pod fits: pods of one shape fit the same nodes."""
        return tuple(request._replace(container="") for request in self.requests)


class Books:
    """The pods, what they hold, and the promises that were broken.

    Attributes:
        fleet: nodes and cards.
        violations: in the order in which they were observed.
        placed: number of pods ever observed with a node.
        slowest: longest time in seconds that a pod waited although a node had free cards for it all the time.
    """

    def __init__(self, *, clock: Callable[[], float], patience_seconds: float) -> None:
        """Report a pod that waits longer than `patience_seconds` (by `clock`) while a node has free cards for it."""
        self.fleet = Fleet()
        self.violations: list[Violation] = []
        self.placed = 0
        self.slowest = 0.0
        self._clock = clock
        self._patience = patience_seconds
        self._pods: dict[str, _Pod] = {}
        self._used: dict[str, Use] = {}
        self._late: set[str] = set()

    # ---- observations -----------------------------------------------------------------------------------------------

    def set_pod(self, content: dict[str, Any]) -> None:
        """Record a new or changed pod."""
        self._check_cards(self._record(content))

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
        """Check for pods that wait although a node has free cards for them; call it at intervals."""
        now, fitting = self._clock(), self._fitting()
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
        """Return the use of every card ever observed, by UUID."""
        return {uuid: self._used.get(uuid, Use()) for uuid in self.fleet.cards}

    def fitting(self) -> list[str]:
        """Return the names of the pods that wait although a node has free cards for them."""
        return [self._pods[uid].name for uid in self._fitting()]

    def bound(self) -> list[str]:
        """Return the names of the pods that have a node and have not ended."""
        return [pod.name for pod in self._pods.values() if pod.node and not pod.ended]

    # ---- checks -----------------------------------------------------------------------------------------------------

    def _fitting(self) -> set[str]:
        waiting = [(uid, pod) for uid, pod in self._pods.items() if pod.is_waiting]
        nodes = list(self.fleet.free(self._used, now=self._clock()).values()) if waiting else []
        fitting: dict[tuple[Request, ...], bool] = {}
        for _, pod in waiting:
            if pod.shape not in fitting:
                fitting[pod.shape] = any(fits(pod.requests, cards) for cards in nodes)
        return {uid for uid, pod in waiting if fitting[pod.shape]}

    def _record(self, content: dict[str, Any]) -> Iterable[str]:
        """Record a pod; return the cards of which it takes more than before."""
        uid, new = content["metadata"]["uid"], _Pod(content)
        old = self._pods.get(uid)
        self._check_pod(new)
        if old is not None:
            self._check_change(old, new)
            new.fitting_since = old.fitting_since if new.is_waiting else None
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

    def _check_change(self, old: _Pod, new: _Pod) -> None:
        if old.node and new.node != old.node:
            self._report(Kind.BOUND_TWICE, new.name, f"its node was {old.node} and is now {new.node or 'empty'}")
        if old.text is not None and new.text != old.text:
            self._report(Kind.BOUND_TWICE, new.name, f"its allocation was {old.text} and is now {new.text}")

    def _check_pod(self, pod: _Pod) -> None:
        if pod.unreadable:
            self._report(Kind.WRONG_ALLOCATION, pod.name, pod.unreadable)
        elif not pod.node and pod.allocation is not None:
            self._report(Kind.NO_NODE, pod.name, f"its allocation is {pod.text}")
        elif pod.node and not pod.ended and pod.requests and pod.allocation is None:
            self._report(Kind.NO_ALLOCATION, pod.name, f"it is on {pod.node}")
        elif pod.node and not pod.ended and pod.allocation is not None:
            for mismatch in self._mismatches(pod, pod.allocation):
                self._report(Kind.WRONG_ALLOCATION, pod.name, f"{mismatch}: {pod.text}")

    def _mismatches(self, pod: _Pod, allocated: Allocation) -> Iterator[str]:
        """Yield each difference between an allocation and the pod's request."""
        if allocated.node != pod.node:
            yield f"the pod is on {pod.node}"
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
                if card is not None and use != request.on(card.total):
                    yield f"{request.container} requested {request.on(card.total)} of {uuid}"

    def _check_cards(self, uuids: Iterable[str]) -> None:
        """Check the cards of which a pod takes more than before."""
        for uuid in uuids:
            card, used = self.fleet.cards.get(uuid), self._used[uuid]
            if card is None:
                self._report(Kind.WRONG_ALLOCATION, uuid, "it is allocated, but no node reports it")
            elif not used.fits(card.total):
                holders = sorted(pod.name for pod in self._pods.values() if uuid in pod.uses)
                self._report(
                    Kind.OVER_CAPACITY, uuid, f"its capacity is {card.total}, {used} is allocated, to {holders}"
                )

    def _report(self, kind: Kind, subject: str, what: str) -> None:
        violation = Violation(kind, subject, what)
        if violation not in self.violations:
            self.violations.append(violation)
