"""Consistency check: compares the ledger and its sums with a recount from pods and inventories, as after a restart.

A comparison takes seconds in a large cluster, so it runs in short steps, between which pods are scheduled. Each object
is compared within one step, and each sum with pods of the same moment, so a change meanwhile is not a difference.
"""

from collections.abc import Hashable, Iterator
from itertools import chain
from typing import TypeVar

import msgspec

from allocation.allocation import Charge
from allocation.errors import AllocationError
from allocation.ledger.ledger import LEASE_PREFIX, Reservation
from allocation.steps import Steps
from cluster.informer import Informer
from scheduler.fairness.use import UseByOwner
from scheduler.holds import PREFIX as HOLD_PREFIX
from scheduler.holds import Hold
from scheduler.metrics.labels import DifferenceKind
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from scheduler.state.running_allocation import running_allocation

Owner = TypeVar("Owner", bound=Hashable)


class Difference(msgspec.Struct, frozen=True):
    """Something that is counted otherwise than a recount counts it.

    Attributes:
        kind: what it is.
        name: the UID of a pod, the name of a node or a Lease, or the owner of a sum.
        text: what is counted, and what a recount has.
        unbound: the pod that is counted although the informer shows it without a node; the API server may know better.
        orphan: the pod, as it was last shown on a node, that has ended since, so that what it holds can be released.
    """

    kind: DifferenceKind
    name: str
    text: str
    unbound: Pod | None = None
    orphan: Pod | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Equal for differences of the same object."""
        return self.kind, self.name


def differences(
    state: ClusterState, pods: Informer[Pod], *, being_bound: frozenset[str] = frozenset()
) -> Steps[list[Difference]]:
    """Return everything that is counted otherwise than a recount from pods and inventories counts it.

    `pods` must pass each change on to `state` at once. At the first step, the pods with the UIDs `being_bound` may
    hold cards without having a node.
    """
    found: dict[tuple[str, str], Difference] = {}
    for each in chain(_counted(state, pods, being_bound), _pods(state, pods), _cards(state), _kept_cards(state)):
        if each is not None:
            found[each.key] = each
        yield
    sums = yield from _sums("quota", state.quotas.counted)
    sums += yield from _sums("queue", state.fair_share.use)
    sums += yield from _sums("hold", state.fair_share.held)
    capacity = yield from state.fair_share.capacity.differences()
    sums += [Difference("capacity", name, text) for name, text in capacity.items()]
    return [*found.values(), *sums]


def _counted(state: ClusterState, pods: Informer[Pod], being_bound: frozenset[str]) -> Iterator[Difference | None]:
    """Compare everything that is counted with the pods of the same moment."""
    present, reservations = iter(pods), state.ledger.snapshot()
    being_bound |= state.gangs.being_decided()
    in_quotas, in_queues = state.quotas.counted.snapshot(), state.fair_share.use.snapshot()
    shown: dict[str, Pod] = {}
    for pod in present:
        shown[pod.uid] = pod
        yield None
    for uid, reservation in reservations.items():
        if reservation.is_pod and not (reservation.assumed and uid in being_bound):
            text = f"holds a share of node {reservation.node}"
            yield _without_node("pod", uid, shown.get(uid), text, state.running.get(uid))
        else:
            yield None if reservation.is_pod else _kept_card(state, uid)
    for uid, counted in in_quotas.items():
        text = f"the pod with UID {uid} counts for the quotas of namespace {counted.owner}, but holds no cards"
        yield Difference("quota", f"pod {uid}", text) if uid not in reservations else None
    for uid, charged in in_queues.items():
        if uid not in being_bound:
            text = f"counts for queue {charged.owner}"
            yield _without_node("queue", uid, shown.get(uid), text, state.running.get(uid))


def _without_node(kind: DifferenceKind, uid: str, pod: Pod | None, text: str, orphan: Pod | None) -> Difference | None:
    """Return the difference of a pod that is counted, unless it has a node and is not finished.

    `orphan` is the pod as the API server once showed it on a node; None if it is only assumed there: kube-scheduler may
    know such a pod before the informer shows it at all.
    """
    if pod is None or pod.finished:
        text = f"the pod with UID {uid} does not exist or is finished, but {text}"
        return Difference(kind, f"pod {uid}", text, orphan=orphan)
    if pod.spec.node_name:
        return None
    return Difference(kind, f"pod {uid}", f"pod {pod} has no node and is not being bound, but {text}", unbound=pod)


def _pods(state: ClusterState, pods: Informer[Pod]) -> Iterator[Difference | None]:
    """Compare each pod with what is counted for it."""
    for pod in pods:
        current = pods.get(pod.metadata.name, pod.metadata.namespace)
        yield _pod(state, current) if current is not None else None


def _pod(state: ClusterState, pod: Pod) -> Difference | None:
    node = pod.spec.node_name
    if pod.finished or not node:
        return None
    try:
        counted = running_allocation(pod, state.settings, resized_to=state.resized_to.get(pod.uid))
    except AllocationError:
        return None  # the pod closes its node, whatever is counted for it
    expected: tuple[Charge, ...] | None = counted[1] if counted is not None else None
    held = state.ledger.reservation(pod.uid)
    actual = held.charges if held is not None and held.node == node else None
    if actual != expected:
        return Difference("pod", pod.uid, f"pod {pod} on node {node} holds {expected}, the ledger has {actual} for it")
    if expected is not None and state.quotas.counted.owner(pod.uid) != pod.metadata.namespace:
        return Difference("quota", pod.uid, f"pod {pod} does not count for the quotas of its namespace")
    if (expected is not None or state.is_ours(pod)) and not state.fair_share.charges(pod):
        return Difference("queue", pod.uid, f"pod {pod} is not charged to its queue as it should be")
    return None


def _cards(state: ClusterState) -> Iterator[Difference | None]:
    """Compare the columns of each node with the reservations there."""
    for node in state.ledger.nodes:
        text = state.ledger.difference(node)
        yield Difference("card", node, text) if text else None


def _kept_cards(state: ClusterState) -> Iterator[Difference | None]:
    """Compare the cards that Leases and holds keep from pods with the reservations for that."""
    for lease in state.device_leases:
        yield _kept_card(state, LEASE_PREFIX + lease.name)
    for hold in state.holds:
        yield _kept_card(state, HOLD_PREFIX + hold.uid)


def _kept_card(state: ClusterState, uid: str) -> Difference | None:
    """Compare a reservation of no pod with the Lease or the hold that it is for."""
    reservation = state.ledger.reservation(uid)
    if uid.startswith(LEASE_PREFIX):
        name = uid.removeprefix(LEASE_PREFIX)
        text = f"Lease {name} of a card closes other cards than the ledger has closed for it: {reservation}"
        return Difference("lease", name, text) if not state.device_leases.matches(name) else None
    if uid.startswith(HOLD_PREFIX):
        name = uid.removeprefix(HOLD_PREFIX)
        hold = state.holds.of(name)
        text = f"for the pod with UID {name} the ledger has {reservation}, but {hold} is held"
        return Difference("hold", name, text) if not _is_of(hold, reservation) else None
    return None  # of a MIG instance that waits for its pod, or of a claim of another DRA driver


def _is_of(hold: Hold | None, reservation: Reservation | None) -> bool:
    if hold is None or reservation is None:
        return hold is None and reservation is None
    return (hold.node, hold.charges) == (reservation.node, reservation.charges)


def _sums(kind: DifferenceKind, use: UseByOwner[Owner]) -> Steps[list[Difference]]:
    """Compare the sums by owner with what the pods of each owner hold."""
    found = yield from use.differences()
    return [
        Difference(kind, str(owner), f"{kind} {owner}: the pods hold {expected}, the sums are {actual}")
        for owner, actual, expected in found
    ]
