"""The pods and nodes of each gang: the pods of one namespace whose GpuClaims have the same `gangRef`.

A pod belongs to a gang as long as its claim exists. Pods count as soon as they are assumed on a node.
"""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from allocation.names import CLAIM
from scheduler.objects import Pod
from scheduler.volumes.planned_pod import PlannedPod

_Name = tuple[str, str]
"""Namespace and name of a claim, or namespace and `gangRef` of a gang."""

Member = TypeVar("Member", _Name, str)

_NO_NODES: Final[Mapping[str, int]] = MappingProxyType({})


class Gangs:
    """Which pods each gang has, and how many each node has of them."""

    def __init__(self) -> None:
        self._gang_of: dict[_Name, str] = {}
        """The `gangRef` of each claim, empty for none."""
        self._pods: dict[str, tuple[_Name, str]] = {}
        """The claim and the node of each pod, by its UID."""
        self._by_claim: dict[_Name, Counter[str]] = {}
        self._by_gang: dict[_Name, Counter[str]] = {}
        self._users: dict[_Name, set[str]] = {}
        """The UIDs of the pods of each claim."""
        self._claims: dict[_Name, set[_Name]] = {}
        """The claims of each gang."""

    def nodes_of(self, pod: Pod) -> Mapping[str, int]:
        """Return the nodes that the gang of a pod has, with the number of its pods there; empty without a gang."""
        gang = self._gang(pod)
        return self._by_gang.get(gang, _NO_NODES) if gang is not None else _NO_NODES

    def members(self, uid: str) -> list[str]:
        """Return the UIDs of the pods with a node in the gang of one of them, in order; empty without a gang."""
        counted = self._pods.get(uid)
        gang = self._gang_of.get(counted[0]) if counted is not None else None
        if counted is None or not gang:
            return []
        claims = self._claims[counted[0][0], gang]
        return sorted(member for claim in claims for member in self._users.get(claim, ()))

    def has(self, pod: Pod, uid: str) -> bool:
        """Whether a pod belongs to the same gang as a pod with a node."""
        gang, counted = self._gang(pod), self._pods.get(uid)
        return gang is not None and counted is not None and counted[0] in self._claims.get(gang, ())

    def _gang(self, pod: Pod) -> _Name | None:
        name = pod.metadata.annotations.get(CLAIM)
        if name is None:
            return None
        namespace = pod.metadata.namespace
        gang = self._gang_of.get((namespace, name))
        if gang is None and isinstance(pod, PlannedPod) and name in pod.gpu_claims:
            gang = pod.gpu_claims[name].gang_ref
        return (namespace, gang) if gang else None

    def set_claim(self, namespace: str, name: str, gang: str) -> None:
        """Set the `gangRef` of a claim, empty for none."""
        claim = (namespace, name)
        if self._gang_of.get(claim) == gang:
            return
        self.drop_claim(namespace, name)
        self._gang_of[claim] = gang
        if gang:
            self._claims.setdefault((namespace, gang), set()).add(claim)
        if gang and claim in self._by_claim:
            self._by_gang.setdefault((namespace, gang), Counter()).update(self._by_claim[claim])

    def drop_claim(self, namespace: str, name: str) -> None:
        """Forget a claim that does not exist any more."""
        claim = (namespace, name)
        gang = self._gang_of.pop(claim, "")
        if gang:
            _discard(self._claims, (namespace, gang), claim)
        if gang and claim in self._by_claim:
            _subtract(self._by_gang, (namespace, gang), self._by_claim[claim])

    def add(self, pod: Pod, node: str) -> None:
        """Count a pod on `node`, which must not be counted yet."""
        name = pod.metadata.annotations.get(CLAIM)
        if name is None:
            return
        claim = (pod.metadata.namespace, name)
        self._pods[pod.uid] = (claim, node)
        self._by_claim.setdefault(claim, Counter())[node] += 1
        self._users.setdefault(claim, set()).add(pod.uid)
        gang = self._gang_of.get(claim)
        if gang:
            self._by_gang.setdefault((claim[0], gang), Counter())[node] += 1

    def remove(self, uid: str) -> None:
        """Stop counting a pod."""
        counted = self._pods.pop(uid, None)
        if counted is None:
            return
        claim, node = counted
        _subtract(self._by_claim, claim, {node: 1})
        _discard(self._users, claim, uid)
        gang = self._gang_of.get(claim)
        if gang:
            _subtract(self._by_gang, (claim[0], gang), {node: 1})


def _subtract(counts: dict[_Name, Counter[str]], name: _Name, nodes: Mapping[str, int]) -> None:
    """Subtract `nodes` from the counts of `name`, and keep no count of 0."""
    remaining = counts[name]
    for node, number in nodes.items():
        remaining[node] -= number
        if not remaining[node]:
            del remaining[node]
    if not remaining:
        del counts[name]


def _discard(sets: dict[_Name, set[Member]], name: _Name, member: Member) -> None:
    """Remove a member of the set of `name`, and keep no empty set."""
    members = sets[name]
    members.discard(member)
    if not members:
        del sets[name]
