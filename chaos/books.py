"""The checker's own books: every pod and card as the API showed them, and each moment in which that may not be.

Pure. Told of changes in the order in which the API server made them, it answers what was broken; it reads no word of
the scheduler's but the pods themselves.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from chaos.fleet import Fleet, fits
from chaos.share import ALLOCATION, SCHEDULER, Ask, Given, UnreadableError, Use, asks, given, uses
from chaos.violation import Kind, Violation

_ENDED = frozenset({"Succeeded", "Failed"})


class _Pod:
    """A pod as it was last seen."""

    def __init__(self, content: dict[str, Any]) -> None:
        metadata, spec = content["metadata"], content["spec"]
        self.name = f"{metadata['namespace']}/{metadata['name']}"
        self.node: str = spec.get("nodeName", "")
        self.text: str | None = metadata.get("annotations", {}).get(ALLOCATION)
        self.ended = content.get("status", {}).get("phase") in _ENDED
        self.waits = (
            not self.node
            and not self.ended
            and not metadata.get("deletionTimestamp")
            and not spec.get("schedulingGates")
            and spec.get("schedulerName") == SCHEDULER
        )
        self.unreadable = ""
        self.asks: list[Ask] = []
        self.given: Given | None = None
        self.uses: dict[str, Use] = {}
        try:
            self.asks, self.given = asks(content), given(content)
            if self.given is not None and self.node and not self.ended:
                self.uses = uses(content, self.given)
        except UnreadableError as error:
            self.unreadable = str(error)
        self.fitting_since: float | None = None

    @property
    def shape(self) -> tuple[Ask, ...]:
        """What tells it from others where only room matters."""
        return tuple(ask._replace(container="") for ask in self.asks)


class Books:
    """Who has what, and what was broken.

    Attributes:
        fleet: nodes and cards.
        violations: what was broken, in the order in which it was seen.
        placed: how many pods were ever seen with a node.
        slowest: seconds that the slowest pod had to wait although it fitted all the time.
    """

    def __init__(self, *, clock: Callable[[], float], patience_seconds: float) -> None:
        """Let no pod wait for longer than `patience_seconds` by `clock` while a node has room for it."""
        self.fleet = Fleet()
        self.violations: list[Violation] = []
        self.placed = 0
        self.slowest = 0.0
        self._clock = clock
        self._patience = patience_seconds
        self._pods: dict[str, _Pod] = {}
        self._used: dict[str, Use] = {}
        self._late: set[str] = set()

    # ---- what is seen ----------------------------------------------------------------------------------------------

    def set_pod(self, content: dict[str, Any]) -> None:
        """A pod is new, or has changed."""
        self._check_cards(self._take(content))

    def drop_pod(self, content: dict[str, Any]) -> None:
        """A pod is gone. Its last state counts as well: it may have been bound since the one before."""
        self.set_pod(content)
        self._forget(content["metadata"]["uid"])

    def replace_pods(self, contents: Iterable[dict[str, Any]]) -> None:
        """These are all pods there are at one moment; what came between is not known."""
        now = {content["metadata"]["uid"]: content for content in contents}
        for uid in self._pods.keys() - now.keys():
            self._forget(uid)
        touched = [uuid for content in now.values() for uuid in self._take(content)]
        self._check_cards(touched)

    def tick(self) -> None:
        """Time has passed: look who waits although there is room."""
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
                self._report(Kind.WAITS, pod.name, f"for {waited:.0f} s, and there was room for it all the time")

    # ---- what is known ---------------------------------------------------------------------------------------------

    def used(self) -> dict[str, Use]:
        """Answer what is taken of every card that was ever seen, by UUID."""
        return {uuid: self._used.get(uuid, Use()) for uuid in self.fleet.cards}

    def fitting(self) -> list[str]:
        """Answer the names of the pods that wait for a node although there is room."""
        return [self._pods[uid].name for uid in self._fitting()]

    def bound(self) -> list[str]:
        """Answer the names of the pods that have a node and are not finished."""
        return [pod.name for pod in self._pods.values() if pod.node and not pod.ended]

    # ---- how -------------------------------------------------------------------------------------------------------

    def _fitting(self) -> set[str]:
        waiting = [(uid, pod) for uid, pod in self._pods.items() if pod.waits]
        room = list(self.fleet.room(self._used, now=self._clock()).values()) if waiting else []
        known: dict[tuple[Ask, ...], bool] = {}
        for _, pod in waiting:
            if pod.shape not in known:
                known[pod.shape] = any(fits(pod.asks, cards) for cards in room)
        return {uid for uid, pod in waiting if known[pod.shape]}

    def _take(self, content: dict[str, Any]) -> Iterable[str]:
        """Enter a pod; answer the cards of which it takes more than before."""
        uid, new = content["metadata"]["uid"], _Pod(content)
        old = self._pods.get(uid)
        self._check_pod(new)
        if old is not None:
            self._check_change(old, new)
            new.fitting_since = old.fitting_since if new.waits else None
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
            self._report(Kind.BOUND_TWICE, new.name, f"its node was {old.node} and is {new.node or 'none'}")
        if old.text is not None and new.text != old.text:
            self._report(Kind.BOUND_TWICE, new.name, f"its allocation was {old.text} and is {new.text}")

    def _check_pod(self, pod: _Pod) -> None:
        if pod.unreadable:
            self._report(Kind.WRONG_ALLOCATION, pod.name, pod.unreadable)
        elif not pod.node and pod.given is not None:
            self._report(Kind.NO_NODE, pod.name, f"it was given {pod.text}")
        elif pod.node and not pod.ended and pod.asks and pod.given is None:
            self._report(Kind.NO_ALLOCATION, pod.name, f"it is on {pod.node}")
        elif pod.node and not pod.ended and pod.given is not None:
            for fault in self._faults(pod, pod.given):
                self._report(Kind.WRONG_ALLOCATION, pod.name, f"{fault}: {pod.text}")

    def _faults(self, pod: _Pod, allocation: Given) -> Iterator[str]:
        """Answer in what an allocation is not what was asked for."""
        if allocation.node != pod.node:
            yield f"the pod is on {pod.node}"
        if extra := allocation.containers.keys() - {ask.container for ask in pod.asks}:
            yield f"{sorted(extra)} asked for nothing"
        for ask in pod.asks:
            shares = allocation.containers.get(ask.container, [])
            if len({uuid for uuid, _ in shares}) != ask.cards or len(shares) != ask.cards:
                yield f"{ask.container} asked for {ask.cards} cards"
            for uuid, use in shares:
                card = self.fleet.cards.get(uuid)
                if card is not None and card.node != pod.node:
                    yield f"{uuid} is a card of {card.node}"
                if card is not None and use != ask.of(card.total):
                    yield f"{ask.container} asked for {ask.of(card.total)} of {uuid}"

    def _check_cards(self, uuids: Iterable[str]) -> None:
        """Look at cards of which somebody takes more than before."""
        for uuid in uuids:
            card, used = self.fleet.cards.get(uuid), self._used[uuid]
            if card is None:
                self._report(Kind.WRONG_ALLOCATION, uuid, "a card that no node reports was given out")
            elif not used.fits(card.total):
                holders = sorted(pod.name for pod in self._pods.values() if uuid in pod.uses)
                self._report(Kind.OVER_CAPACITY, uuid, f"it has {card.total}, {used} is given out, to {holders}")

    def _report(self, kind: Kind, subject: str, what: str) -> None:
        found = Violation(kind, subject, what)
        if found not in self.violations:
            self.violations.append(found)
