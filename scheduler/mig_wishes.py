"""The MIG instances that agents are asked to make, for which pod, and until when.

The truth is in the API: a wish stands in `spec.migInstances` of its node's GpuNodeStatus, the instance that was made
for it names it, and the pod that it is for waits, or holds that instance. Each term of leading reads it anew. An
instance that was made for a pod is that pod's alone: until it is bound, and after it is gone until the instance is, the
ledger holds it.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping

import msgspec

from allocation.allocation import Charge
from allocation.inventory import Card
from allocation.ledger import Holding, Ledger
from allocation.mig import Slices, Wish
from allocation.mig_plan import Plan
from cluster.gpu_node_status import GpuNodeStatus

log = logging.getLogger(__name__)

PROMISE = "mig:"
"""Before a wish, the ledger's UID of an instance that is kept for a pod."""
_TICK_SECONDS = 1.0


class _Open(msgspec.Struct):
    wish: Wish
    deadline: float


class Due(msgspec.Struct, frozen=True):
    """What a node's `spec.migInstances` has to become; `version` is that of the object as it was seen."""

    node: str
    version: str
    wishes: tuple[Wish, ...]


class Wishes:
    """What is asked of each node's agent, and what of it must be written."""

    def __init__(
        self, *, ledger: Ledger, is_waiting: Callable[[str], bool], clock: Callable[[], float], seconds: float
    ) -> None:
        """A wish that is of no use to a pod after `seconds` is given up; `is_waiting` knows the pods without a node."""
        self._ledger = ledger
        self._is_waiting = is_waiting
        self._clock = clock
        self._seconds = seconds
        self._open: defaultdict[str, dict[str, _Open]] = defaultdict(dict)
        self._homes: defaultdict[str, set[str]] = defaultdict(set)
        self._seen: dict[str, tuple[str, tuple[Wish, ...] | None]] = {}
        self._told: dict[str, frozenset[str]] = {}
        self._given_up: set[str] = set()
        self._holding: set[str] = set()
        self._barred: dict[str, float] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """Count the instances that are asked for."""
        return sum(map(len, self._open.values()))

    # ---- what is known ---------------------------------------------------------------------------------------------

    def of_pod(self, uid: str) -> list[tuple[str, Wish]]:
        """Answer what is asked for a pod, each with its node."""
        found = [
            (node, each.wish)
            for node in self._homes.get(uid, ())
            for each in self._open.get(node, {}).values()
            if each.wish.pod_uid == uid
        ]
        if not found:
            self._homes.pop(uid, None)
        return found

    def promised(self) -> Mapping[str, list[Slices]]:
        """Answer by card the places that are asked for."""
        found: defaultdict[str, list[Slices]] = defaultdict(list)
        for wishes in self._open.values():
            for each in wishes.values():
                found[each.wish.card].append(each.wish.slices)
        return found

    def barred(self) -> set[str]:
        """Answer the cards on which an instance was asked for in vain a while ago."""
        now = self._clock()
        self._barred = {card: until for card, until in self._barred.items() if until > now}
        return set(self._barred)

    # ---- what happens ----------------------------------------------------------------------------------------------

    def set_status(self, status: GpuNodeStatus) -> None:
        """Take what stands in a node's object, whose cards the ledger knows already."""
        node = status.metadata.name
        told = status.status.mig_instances if status.status is not None else msgspec.UNSET
        reported = () if told is msgspec.UNSET else told
        instances = self._instances(node)
        self._seen[node] = (status.metadata.resource_version, status.spec.mig_instances)
        self._told[node] = frozenset(each.id for each in reported) | instances.keys()
        if instances:
            self._holding.add(node)
        for wish in status.spec.mig_instances or ():
            known = self._open[node]  # which exists from now on, so that what stands in spec for nobody is removed
            if wish.id not in known and wish.id not in self._given_up:
                self._ask(node, wish)
        for each in reported:
            if each.message and each.id in self._open[node] and each.id not in instances:
                log.warning("node %s makes no instance for wish %s: %s", node, each.id, each.message)
                self._give_up(node, each.wish)
        self._review(node)

    def drop_status(self, node: str) -> None:
        """Forget what stood in an object that is gone."""
        self._seen.pop(node, None)
        self._told.pop(node, None)
        self._review(node)

    def add(self, uid: str, plan: Plan) -> None:
        """Ask for the instances of a plan, for the pod with `uid`."""
        known = {name for ids in self._told.values() for name in ids} | {wish.id for _, wish in self.of_pod(uid)}
        known |= self._given_up
        serial = 1 + max((int(name.rpartition("/")[2]) for name in known if name.rpartition("/")[0] == uid), default=-1)
        for number, new in enumerate(plan.instances, serial):
            wish = Wish(f"{uid}/{number}", new.card, new.profile, new.slices)
            self._ask(plan.node, wish)
        self._changed.set()

    def _ask(self, node: str, wish: Wish) -> None:
        self._open[node][wish.id] = _Open(wish, self._clock() + self._seconds)
        self._homes[wish.pod_uid].add(node)

    def lift(self, uid: str) -> None:
        """Let a pod that is being decided see the instances that were made for it as free; `review` ends this."""
        for _, wish in self.of_pod(uid):
            self._ledger.release(PROMISE + wish.id)

    def review(self, uid: str) -> None:
        """Take that a pod was decided, bound, or is gone."""
        for node in {node for node, _ in self.of_pod(uid)}:
            self._review(node)

    # ---- what is to be written -------------------------------------------------------------------------------------

    async def wait(self) -> None:
        """Return when something may have to be written, or a wish may be too old."""
        try:
            is_timed = any(self._open.values()) or self._barred
            async with asyncio.timeout(_TICK_SECONDS if is_timed else None):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()

    def due(self) -> list[Due]:
        """Drop what nobody needs any longer, and answer the nodes whose object says something else than what is needed.

        Only who knows all pods may ask. A node without an object is asked for nothing.
        """
        found = []
        for node in sorted({*self._open, *self._holding}):
            instances = self._instances(node)
            self._recover(node, instances)
            wishes = self._open[node]
            for each in tuple(wishes.values()):
                if not self._is_needed(node, each, instances.get(each.wish.id)):
                    wishes.pop(each.wish.id, None)
            if node not in self._seen:
                continue
            self._hold(node)
            version, written = self._seen[node]
            needed = tuple(wishes[name].wish for name in sorted(wishes))
            # Without a list an agent destroys nothing, so that one is written even if it is empty.
            is_missing = written is None and bool(instances)
            if is_missing or needed != tuple(sorted(written or (), key=lambda wish: wish.id)):
                found.append(Due(node, version, needed))
            elif not wishes:
                del self._open[node]
        return found

    def written(self, due: Due) -> None:
        """Take that the API server has it; the watch will show the same, or has shown it and more by now."""
        seen = self._seen.get(due.node)
        if seen is not None and seen[0] == due.version:
            self._seen[due.node] = (due.version, due.wishes)

    def again(self) -> None:
        """Take that a write failed, so that it is due again."""
        self._changed.set()

    def _recover(self, node: str, instances: Mapping[str, Card]) -> None:
        """Wish again for what pods hold and no list names, because the object was deleted.

        Only what a pod holds counts: what an agent says of its instances alone must not concern any pod.
        """
        for name, card in instances.items():
            holding = self._ledger.holding(name.rpartition("/")[0])
            instance = card.instance
            if name in self._open[node] or holding is None or instance is None or instance.slices is None:
                continue
            if any(charge.uuid == card.uuid for charge in holding.charges):
                self._ask(node, Wish(name, instance.parent, instance.profile, instance.slices))

    def _is_needed(self, node: str, each: _Open, card: Card | None) -> bool:
        wish = each.wish
        holding = self._ledger.holding(wish.pod_uid)
        if holding is not None:
            return holding.node == node and self._is_used(wish, holding, card)
        if not self._is_waiting(wish.pod_uid):
            return False
        if self._clock() >= each.deadline:
            log.warning("node %s has made no use of wish %s for %g s: given up", node, wish.id, self._seconds)
            self._give_up(node, wish)
            return False
        return True

    def _is_used(self, wish: Wish, holding: Holding, card: Card | None) -> bool:
        """Whether a pod holds the instance of its wish, or may do so: one that nobody reports now may come back."""
        if card is not None and any(charge.uuid == card.uuid for charge in holding.charges):
            return True
        return any(
            charge.parent == wish.card and self._ledger.position(charge.uuid) is None for charge in holding.charges
        )

    def _give_up(self, node: str, wish: Wish) -> None:
        self._open[node].pop(wish.id, None)
        self._given_up.add(wish.id)
        self._barred[wish.card] = self._clock() + self._seconds

    # ---- the instances ---------------------------------------------------------------------------------------------

    def _review(self, node: str) -> None:
        if node in self._open or node in self._holding:
            self._hold(node)
            self._changed.set()

    def _hold(self, node: str) -> None:
        """Keep every instance that was made for a pod from all others, unless that pod holds it itself."""
        instances = self._instances(node)
        if instances:
            self._holding.add(node)
        else:
            self._holding.discard(node)
        for holding in tuple(self._ledger.holdings(node)):
            if holding.uid.startswith(PROMISE) and holding.uid.removeprefix(PROMISE) not in instances:
                self._ledger.release(holding.uid)
        for name, card in instances.items():
            owner = self._ledger.holding(name.rpartition("/")[0])
            if owner is not None and any(charge.uuid == card.uuid for charge in owner.charges):
                self._ledger.release(PROMISE + name)
            else:
                charge = Charge(card.uuid, card.memory_mib, card.cores, 1, card.parent)
                self._ledger.record(PROMISE + name, node, (charge,))

    def _instances(self, node: str) -> dict[str, Card]:
        """Answer the instances that were made for wishes, by those."""
        inventory = self._ledger.inventory(node) if node in self._ledger.divided else None
        cards = inventory.cards if inventory is not None else ()
        return {card.instance.wish: card for card in cards if card.instance is not None and card.instance.wish}
