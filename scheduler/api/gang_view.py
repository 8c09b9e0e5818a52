"""Gangs, and the pods of one: who has a node, who waits, and why. `GET /api/gangs` returns it."""

import heapq
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from allocation.errors import AllocationError
from allocation.gang import MOST_MEMBERS
from allocation.steps import Steps
from scheduler.api.gang_types import GangMember, GangsView, GangView, MemberCard, MemberState
from scheduler.gangs.gang import Gang, GangKey
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from scheduler.state.running_allocation import running_allocation

MOST: Final = 500
"""The gangs of one response."""
_LONGEST_MESSAGE: Final = 1024
"""As long as the note of an event can be."""
_STEP: Final = 64

Message = Callable[[str], str]
"""Returns why a pod with a UID waits, as was published; empty if nothing was."""


def published(state: ClusterState) -> Message:
    """Return the function that reads the reason why a pod waits from the scheduler's own queue."""

    def message(uid: str) -> str:
        entry = state.queue.get(uid)
        return entry.published if entry is not None else ""

    return message


def view(
    state: ClusterState, message: Message, *, namespace: str = "", name: str = "", after: str = "", most: int = MOST
) -> Steps[GangsView]:
    """Return the gangs after the one `after`, `namespace/name`, at most `most`: those of a namespace, or all.

    With a `name` only the gangs of that name are returned, and with a namespace, too, the pods of the only one.
    `message` returns why a pod waits.
    """
    last = GangKey(*after.partition("/")[::2])
    found = heapq.nsmallest(most + 1, _keys(state, namespace=namespace, name=name, last=last))
    gangs = []
    for position, key in enumerate(found[:most]):
        if position % _STEP == _STEP - 1:
            yield
        gang = state.gangs.get(key)
        if gang is not None:
            gangs.append(of_gang(state, gang, message, with_members=bool(name and namespace)))
    return GangsView(tuple(gangs), str(found[most - 1]) if len(found) > most else "")


def _keys(state: ClusterState, *, namespace: str, name: str, last: GangKey) -> Iterator[GangKey]:
    for gang in state.gangs:
        key = gang.key
        if namespace in ("", key.namespace) and name in ("", key.name) and key > last:
            yield key


def of_gang(state: ClusterState, gang: Gang, message: Message, *, with_members: bool = False) -> GangView:
    """Return one gang."""
    waiting = gang.waiting.values()
    return GangView(
        namespace=gang.key.namespace,
        name=gang.key.name,
        state=gang.state,
        size=gang.size,
        placed=len(gang.nodes),
        waiting=len(waiting),
        succeeded=len(gang.succeeded),
        waiting_since=min((each.metadata.creation_timestamp or "" for each in waiting), default=""),
        pause_seconds=pause_seconds(state, gang),
        timeout_seconds=gang.timeout,
        block=gang.block,
        disagreement=gang.disagreement,
        message=next((text for each in waiting if (text := _short(message(each.uid)))), ""),
        members=tuple(_members(state, gang, message)) if with_members else (),
    )


def pause_seconds(state: ClusterState, gang: Gang) -> float:
    """Return the seconds until a gang may be decided again; 0 if it does not pause."""
    return round(max(0.0, gang.pause_until - state.queue.clock()), 3)


def _members(state: ClusterState, gang: Gang, message: Message) -> Iterator[GangMember]:
    """Yield the pods of a gang by name."""
    pods = (pod for uid in (*gang.waiting, *gang.nodes, *gang.succeeded) if (pod := state.gangs.pod(uid)) is not None)
    for pod in heapq.nsmallest(MOST_MEMBERS, pods, key=lambda each: each.metadata.name):
        uid, name = pod.uid, pod.metadata.name
        if uid in gang.waiting:
            yield GangMember(name, "waiting", message=_short(message(uid)))
        elif uid in gang.succeeded:
            yield GangMember(name, "succeeded", pod.spec.node_name)
        else:
            yield GangMember(name, _placed(pod), gang.nodes[uid], _cards(state, pod))


def _placed(pod: Pod) -> MemberState:
    """Return whether the API server shows a pod on its node, or its Binding is in progress."""
    return "placed" if pod.spec.node_name else "binding"


def _cards(state: ClusterState, pod: Pod) -> tuple[MemberCard, ...]:
    """Return the cards that the annotation of a pod names; none if it cannot be read, or is not written yet."""
    try:
        held = running_allocation(pod, state.settings)
    except AllocationError:
        return ()
    shares = chain.from_iterable(held[0].containers.values()) if held is not None else ()
    return tuple(dict.fromkeys(MemberCard(share.uuid, share.index) for share in shares))


def _short(text: str) -> str:
    return text[:_LONGEST_MESSAGE]
