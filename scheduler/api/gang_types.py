"""Gangs, as the HTTP API returns them and the command line shows them."""

from typing import Literal

import msgspec

from scheduler.api.json_names import json_name
from scheduler.gangs.gang import GangState

MemberState = Literal["waiting", "binding", "placed", "succeeded"]


class MemberCard(msgspec.Struct, frozen=True, rename=json_name):
    """A card of a pod: its UUID, and its index on the node."""

    uuid: str
    index: int


class GangMember(msgspec.Struct, frozen=True, rename=json_name):
    """One pod of a gang.

    Attributes:
        pod: its name.
        state: `waiting` for a node; `binding`, its Binding is in progress; `placed` on a node; or `succeeded`.
        node: the node that it has, or had; empty while it waits.
        cards: the cards that it has; empty until it is bound.
        message: why it waits, as its condition says; empty if it does not wait, or nothing was published yet.
    """

    pod: str
    state: MemberState
    node: str = ""
    cards: tuple[MemberCard, ...] = ()
    message: str = ""


class GangView(msgspec.Struct, frozen=True, rename=json_name):
    """One gang: pods that get nodes together.

    Attributes:
        namespace: of the gang and its pods.
        name: its name.
        state: `Incomplete`, fewer pods exist than it needs; `Waiting`, enough exist, and none has a node; `Binding`,
            nodes are reserved, and the Bindings are being written; `Running`, as many as necessary have nodes;
            `Partial`, some have nodes, but fewer than necessary; `Finished`, pods have succeeded, and none is left.
        size: how many of its pods have to get nodes together; 1 for a gang that is only a preference.
        placed: how many have nodes.
        waiting: how many wait for one.
        succeeded: how many have succeeded and still exist; they count as if they had nodes.
        waiting_since: when the oldest pod that waits was created; empty if none waits.
        pause_seconds: the time until it may be decided again; 0 if it does not pause.
        timeout_seconds: how long it may wait, or be partial; 0 is for ever.
        block: the key of a node label whose value all its nodes must share; empty if they may differ.
        disagreement: in what its pods differ that they should declare alike; empty if they agree.
        message: why it was rejected when it was last decided, as the condition of one of its pods says; empty if no pod
            waits, or nothing was published yet.
        members: its pods by name, at most 2048; empty unless the request has its name and
            namespace.
    """

    namespace: str
    name: str
    state: GangState
    size: int
    placed: int
    waiting: int
    succeeded: int
    waiting_since: str = ""
    pause_seconds: float = 0.0
    timeout_seconds: float = 0.0
    block: str = ""
    disagreement: str = ""
    message: str = ""
    members: tuple[GangMember, ...] = ()


class GangExplanation(msgspec.Struct, frozen=True, rename=json_name):
    """The gang of a pod, and whether its pods would get nodes together now.

    Attributes:
        name: its name; it is in the namespace of the pod.
        state: as in `GangView`.
        size: how many of its pods have to get nodes together.
        placed: how many have nodes, or have succeeded.
        waiting: how many wait for one; in a simulation with the pod itself.
        pause_seconds: the time until it may be decided again; 0 if it does not pause.
        fitting: how many pods would have nodes if the gang was decided now; None if that was not tried: the pod has a
            node already, or is decided alone, too few pods exist, more than 256 wait, the pods change at the moment, or
            trying took too long; and in extender mode.
        pod: the first pod that would have none; empty without one.
        why: why no node takes it.
    """

    name: str
    state: GangState
    size: int
    placed: int
    waiting: int
    pause_seconds: float = 0.0
    fitting: int | None = None
    pod: str = ""
    why: str = ""


class GangsView(msgspec.Struct, frozen=True, rename=json_name):
    """Some gangs, by namespace and name.

    Attributes:
        gangs: at most 500 of them.
        next: the last of these, `namespace/name`, if there are more; a request with it as `after` returns those.
    """

    gangs: tuple[GangView, ...]
    next: str = ""
