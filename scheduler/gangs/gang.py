"""One gang: its pods that wait, those that have nodes, and how many have to get nodes together."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, Literal, TypeVar

import msgspec

from allocation.gang import MOST_MEMBERS, Declaration
from allocation.names import HAND_OVER_NAME
from scheduler.objects import Pod

T = TypeVar("T")

GangState = Literal["Incomplete", "Waiting", "Binding", "Running", "Partial", "Finished"]
"""How far a gang is.

`Incomplete`: fewer pods exist than have to get nodes together; `Waiting`: enough exist, and none has a node; `Binding`:
nodes are reserved, and the Bindings are being written; `Running`: as many pods as necessary have nodes; `Partial`: some
have nodes, but fewer than necessary; `Finished`: pods have succeeded, and none runs or waits any more.
"""


class GangKey(msgspec.Struct, frozen=True, order=True):
    """The namespace and the name of a gang; no gang extends over several namespaces."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"


class GroupSpec(msgspec.Struct, frozen=True):
    """What PodGroups say about a gang.

    Attributes:
        min_member: the least number of pods; 0 without a PodGroup.
        timeout: for how many seconds it may wait; 0 for ever.
        block: the key of a node label whose value all its nodes must share; empty if they may differ.
        parent: the group of groups that it belongs to; empty for none.
    """

    min_member: int = 0
    timeout: float = 0.0
    block: str = ""
    parent: str = ""


NO_GROUP: Final = GroupSpec()
"""A gang without a PodGroup."""


def _merged(groups: Collection[GroupSpec]) -> GroupSpec:
    """Return what PodGroups of one name say together, of which the plugin and Kubernetes may have one each."""
    if not groups:
        return NO_GROUP
    return GroupSpec(
        max(each.min_member for each in groups),
        max(each.timeout for each in groups),
        max(each.block for each in groups),
        max(each.parent for each in groups),
    )


class Gang:
    """The pods of a gang.

    Attributes:
        key: which gang it is.
        waiting: its pods that wait for nodes and are not even assumed on one, by UID.
        nodes: the node of each pod that has one, by UID, as soon as it is assumed there.
        succeeded: the UIDs of the pods that have ended well and still exist.
        size: how many of its pods have to get nodes together: the largest number that is declared, at least 1.
        is_committing: whether what was decided for it is being written.
        state_before: its state before the decision that is being made about it; None while none is. Meanwhile pods may
            be assumed on nodes that will not go there.
        tried_block: the block to which a decision that is being made restricts its pods; None without a restriction.
        pause_until: when it may be decided again, on the clock of the queue.
        group: what its PodGroups say.
    """

    def __init__(self, key: GangKey) -> None:
        """Begin without pods."""
        self.key = key
        self.waiting: dict[str, Pod] = {}
        self.nodes: dict[str, str] = {}
        self.succeeded: set[str] = set()
        self.size = 1
        self.is_committing = False
        self.state_before: GangState | None = None
        self.tried_block: str | None = None
        self.pause_until = 0.0
        self.group = NO_GROUP
        self._groups: dict[str, GroupSpec] = {}
        """What each of its PodGroups says, by the API group of the PodGroup."""
        self._leaving: set[str] = set()
        """The UIDs of the pods that have nodes and are being deleted: their successors wait for one another."""
        self._handed_over: set[str] = set()
        """The UIDs of the pods that the loop leaves to kube-scheduler."""
        self._declarations: dict[str, Declaration] = {}
        self._sizes: Counter[int] = Counter()
        self._blocks: Counter[str] = Counter()
        self._by_node: Counter[str] = Counter()

    def __bool__(self) -> bool:
        """Whether it has any pod, or a PodGroup."""
        return bool(self._declarations) or self.group != NO_GROUP

    # ---- what is declared ------------------------------------------------------------------------------------------

    @property
    def timeout(self) -> float:
        """The seconds for which it may wait, or be incomplete: the longest time that is declared; 0 is for ever."""
        return max((self.group.timeout, *(each.timeout for each in self._declarations.values())))

    @property
    def block(self) -> str:
        """The key of a node label whose value all its nodes must share; empty if they may differ."""
        return min(self._blocks, default=self.group.block)

    @property
    def disagreement(self) -> str:
        """In what its pods differ that they should declare alike; empty if they agree."""
        sizes = sorted(self._sizes.keys() - {0})
        if len(sizes) > 1:
            return f"its pods declare sizes from {sizes[0]} to {sizes[-1]}: the largest counts"
        if len(self._blocks) > 1 or 0 < self._blocks.total() < len(self._declarations):
            return f"its pods declare different blocks: {self.block} counts"
        return ""

    def said_by(self, source: str) -> GroupSpec | None:
        """Return what its PodGroup of one API group says; None without one."""
        return self._groups.get(source)

    def set_group(self, source: str, group: GroupSpec | None) -> None:
        """Set what its PodGroup of one API group says; None without one."""
        if group is None:
            self._groups.pop(source, None)
        else:
            self._groups[source] = group
        self.group = _merged(self._groups.values())
        self._measure()

    def _measure(self) -> None:
        declared = max(self._sizes, default=0)
        self.size = max(1, min(MOST_MEMBERS, max(declared, self.group.min_member)))

    # ---- its pods --------------------------------------------------------------------------------------------------

    @property
    def placed(self) -> int:
        """The number of its pods that have nodes and are not being deleted, or have succeeded."""
        return len(self.nodes) - len(self._leaving) + len(self.succeeded)

    @property
    def is_satisfied(self) -> bool:
        """Whether as many pods as necessary have nodes, so that the others need not wait for one another."""
        return self.size == 1 or self.placed >= self.size

    @property
    def is_complete(self) -> bool:
        """Whether as many pods as necessary exist, with a node or without."""
        return self.placed + len(self.waiting) >= self.size

    @property
    def unready(self) -> str:
        """Why it cannot be decided now, whatever is free, such as that too few of its pods exist; empty if it can."""
        if self.is_committing:
            return f"others of gang {self.key} are being bound"
        if 0 < len(self._handed_over) < len(self._declarations):
            return (
                f"gang {self.key} has pods with resourceClaims, which kube-scheduler places, and pods without, which it"
                " does not place: give all of them resourceClaims, or none"
            )
        if not self.is_complete:
            return f"gang {self.key} needs {self.size} pods, and fewer exist: create the others"
        return ""

    @property
    def is_partial(self) -> bool:
        """Whether some of its pods have nodes, but fewer than necessary."""
        return 0 < self.placed < self.size

    @property
    def state(self) -> GangState:
        """How far it is; while it is being decided, how far it was."""
        if self.state_before is not None:
            return self.state_before
        if self.is_committing:
            return "Binding"
        if len(self.nodes) > len(self._leaving):
            return "Running" if self.placed >= self.size else "Partial"
        if self.succeeded and not self.waiting:
            return "Finished"
        return "Waiting" if self.is_complete else "Incomplete"

    @property
    def by_node(self) -> Mapping[str, int]:
        """The nodes of its pods that are not being deleted, with the number of these pods there.

        A gang that is created again while its former pods end may thus go to other blocks than they.
        """
        return self._by_node

    def put(self, pod: Pod, declaration: Declaration, *, node: str, has_succeeded: bool) -> None:
        """Set the state of a pod: on a `node`, ended well, or without either, waiting."""
        uid = pod.uid
        self.forget(uid)
        self._declarations[uid] = declaration
        if pod.spec.scheduler_name == HAND_OVER_NAME:
            self._handed_over.add(uid)
        self._sizes[declaration.size] += 1
        if declaration.size > self.size:
            self._measure()
        if declaration.block:
            self._blocks[declaration.block] += 1
        if node:
            self.nodes[uid] = node
            if pod.metadata.deletion_timestamp:
                self._leaving.add(uid)
            else:
                self._by_node[node] += 1
        elif has_succeeded:
            self.succeeded.add(uid)
        else:
            self.waiting[uid] = pod

    def forget(self, uid: str) -> None:
        """Forget a pod."""
        declaration = self._declarations.pop(uid, None)
        if declaration is None:
            return
        _decrement(self._sizes, declaration.size)
        if declaration.size not in self._sizes:
            self._measure()
        if declaration.block:
            _decrement(self._blocks, declaration.block)
        node = self.nodes.pop(uid, None)
        if node is not None and uid not in self._leaving:
            _decrement(self._by_node, node)
        self._leaving.discard(uid)
        self._handed_over.discard(uid)
        self.waiting.pop(uid, None)
        self.succeeded.discard(uid)


def _decrement(counts: Counter[T], key: T) -> None:
    """Count one less, and keep no count of 0."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
