"""The gangs of all pods: which gang a pod belongs to, by its own keys and by the `gangRef` of its GpuClaim.

By its GpuClaim a pod belongs to a gang as long as the claim exists. A pod has a node here as soon as it is assumed
there.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from allocation.errors import AllocationError
from allocation.gang import Declaration, declared
from allocation.names import CLAIM
from scheduler.gangs.gang import Gang, GangKey, GroupSpec
from scheduler.objects import Pod
from scheduler.pod_spec.spec import PodSpec
from scheduler.volumes.planned_pod import PlannedPod

_Claim = tuple[str, str]
"""Namespace and name of a claim."""

_NO_NODES: Final[Mapping[str, int]] = MappingProxyType({})


class _Member(msgspec.Struct):
    """A pod that may belong to a gang: its last known state, its claim, its gang, and where it is."""

    pod: Pod
    claim: _Claim | None
    key: GangKey | None = None
    is_waiting: bool = False
    node: str = ""
    has_succeeded: bool = False


class Gangs:
    """All gangs.

    Attributes:
        reads_scheduling_group: whether `spec.schedulingGroup` names the gang of a pod; otherwise another scheduler
            evaluates it, or such pods are held.
    """

    def __init__(self) -> None:
        self.reads_scheduling_group = False
        self._gangs: dict[GangKey, Gang] = {}
        self._members: dict[str, _Member] = {}
        self._refs: dict[_Claim, str] = {}
        """The `gangRef` of each claim, empty for none."""
        self._users: dict[_Claim, set[str]] = {}
        """The UIDs of the pods of each claim."""

    def __iter__(self) -> Iterator[Gang]:
        """Iterate over the gangs."""
        return iter(tuple(self._gangs.values()))

    # ---- which pods belong together --------------------------------------------------------------------------------

    def get(self, key: GangKey) -> Gang | None:
        """Return a gang, or None if it has no pods."""
        return self._gangs.get(key)

    def of(self, uid: str) -> Gang | None:
        """Return the gang of a pod that waits or has a node; None without a gang."""
        member = self._members.get(uid)
        return self._gangs[member.key] if member is not None and member.key is not None else None

    def pod(self, uid: str) -> Pod | None:
        """Return the last known state of a pod that belongs to a gang."""
        member = self._members.get(uid)
        return member.pod if member is not None and member.key is not None else None

    def joined(self, pod: Pod) -> tuple[GangKey | None, Declaration | None]:
        """Return the gang that a pod would belong to, and what it declares, whether or not it exists."""
        return self._read(pod)

    def being_decided(self) -> frozenset[str]:
        """Return the UIDs of the pods with a node, maybe only assumed there, of gangs that are being decided."""
        return frozenset(uid for gang in self._gangs.values() if gang.state_before is not None for uid in gang.nodes)

    def nodes_of(self, pod: Pod) -> Mapping[str, int]:
        """Return the nodes of a pod's gang, with the number of pods that stay there; empty without a gang."""
        gang = self._of(pod)
        return gang.by_node if gang is not None else _NO_NODES

    def members(self, uid: str) -> list[str]:
        """Return the UIDs of the pods with a node in the gang of one of them, in order; empty without a gang."""
        gang = self.of(uid)
        return sorted(gang.nodes) if gang is not None and uid in gang.nodes else []

    def has(self, pod: Pod, uid: str) -> bool:
        """Whether a pod belongs to the same gang as a pod with a node."""
        gang = self.of(uid)
        return gang is not None and uid in gang.nodes and self._of(pod) is gang

    def waits_for_others(self, pod: Pod) -> bool:
        """Whether a pod gets a node only together with others of its gang."""
        gang = self._of(pod)
        return gang is not None and (gang.is_committing or not gang.is_satisfied)

    def _of(self, pod: Pod) -> Gang | None:
        member = self._members.get(pod.uid)
        key = member.key if member is not None else self._read(pod)[0]
        return self._gangs.get(key) if key is not None else None

    def pod_group(self, spec: PodSpec) -> str:
        """Return the PodGroup that a pod names by its `spec.schedulingGroup`, if that counts; empty for none."""
        group = spec.scheduling_group
        return group.pod_group_name if group is not None and self.reads_scheduling_group else ""

    def _declaration(self, pod: Pod) -> Declaration | None:
        claim, planned = _claim_of(pod), ""
        if claim is not None and isinstance(pod, PlannedPod) and claim[1] in pod.gpu_claims:
            planned = pod.gpu_claims[claim[1]].gang_ref
        ref = self._refs.get(claim, planned) if claim is not None else ""
        meta = pod.metadata
        return declared(meta.labels, meta.annotations, gang_ref=ref, pod_group=self.pod_group(pod.spec))

    def _read(self, pod: Pod) -> tuple[GangKey | None, Declaration | None]:
        """Return the gang of a pod and what it declares; a pod whose values cannot be read has none, and is held."""
        try:
            found = self._declaration(pod)
        except AllocationError:
            return None, None
        return (GangKey(pod.metadata.namespace, found.name), found) if found is not None else (None, None)

    # ---- pods ------------------------------------------------------------------------------------------------------

    def set_waiting(self, pod: Pod) -> None:
        """Set the state of a pod that waits for a node."""
        member = self._member(pod)
        if member is not None:
            member.is_waiting = True
            self._place(pod.uid, member)

    def drop_waiting(self, uid: str) -> None:
        """Note that a pod does not wait for a node any more."""
        member = self._members.get(uid)
        if member is not None and member.is_waiting:
            member.is_waiting = False
            self._place(uid, member)

    def add(self, pod: Pod, node: str) -> None:
        """Count a pod on `node`."""
        member = self._member(pod)
        if member is not None:
            member.node = node
            self._place(pod.uid, member)

    def remove(self, uid: str) -> None:
        """Stop counting a pod on its node."""
        member = self._members.get(uid)
        if member is not None and member.node:
            member.node = ""
            self._place(uid, member)

    def set_finished(self, pod: Pod) -> None:
        """Note a pod that has finished; of one that has succeeded its gang needs no other in its place."""
        member = self._member(pod) if pod.succeeded else None
        if member is not None:
            member.has_succeeded = True
            self._place(pod.uid, member)

    def forget(self, uid: str) -> None:
        """Forget that a pod has succeeded, which is deleted."""
        member = self._members.get(uid)
        if member is not None and member.has_succeeded:
            member.has_succeeded = False
            self._place(uid, member)

    def _member(self, pod: Pod) -> _Member | None:
        """Return what is kept of a pod, as it is now; None for a pod that can belong to no gang."""
        member, claim = self._members.get(pod.uid), _claim_of(pod)
        if member is None:
            if claim is None and self._read(pod)[0] is None:
                return None
            member = self._members[pod.uid] = _Member(pod, None)
        member.pod = pod
        self._set_claim_of(pod.uid, member, claim)
        return member

    def _set_claim_of(self, uid: str, member: _Member, claim: _Claim | None) -> None:
        """Note which claim a pod names, if any."""
        if member.claim is not None and member.claim != claim:
            users = self._users[member.claim]
            users.discard(uid)
            if not users:
                del self._users[member.claim]
        if claim is not None:
            self._users.setdefault(claim, set()).add(uid)
        member.claim = claim

    def _place(self, uid: str, member: _Member) -> None:
        """Count a pod in its gang as it is now; forget it if it is nowhere any more."""
        key, declaration = self._read(member.pod)
        if key != member.key and member.key is not None:
            self._leave(uid, member.key)
        member.key = key
        if not (member.is_waiting or member.node or member.has_succeeded):
            if key is not None:
                self._leave(uid, key)
            self._set_claim_of(uid, member, None)
            del self._members[uid]
            return
        if key is None or declaration is None:
            return
        self._gang(key).put(member.pod, declaration, node=member.node, has_succeeded=member.has_succeeded)

    def _gang(self, key: GangKey) -> Gang:
        """Return a gang, also one that has no pod yet."""
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = Gang(key)
        return gang

    def _leave(self, uid: str, key: GangKey) -> None:
        gang = self._gangs.get(key)
        if gang is not None:
            gang.forget(uid)
            self._tidy(gang)

    def _tidy(self, gang: Gang) -> None:
        if not gang:
            del self._gangs[gang.key]

    # ---- claims and groups -----------------------------------------------------------------------------------------

    def set_claim(self, namespace: str, name: str, ref: str) -> None:
        """Set the `gangRef` of a claim, empty for none."""
        self._set_ref((namespace, name), ref)

    def drop_claim(self, namespace: str, name: str) -> None:
        """Forget a claim that does not exist any more."""
        self._set_ref((namespace, name), None)

    def _set_ref(self, claim: _Claim, ref: str | None) -> None:
        if self._refs.get(claim) == ref:
            return
        if ref is None:
            del self._refs[claim]
        else:
            self._refs[claim] = ref
        for uid in tuple(self._users.get(claim, ())):
            self._place(uid, self._members[uid])

    def set_group(self, key: GangKey, source: str, group: GroupSpec | None) -> list[str]:
        """Set what a PodGroup of one API group says, None without one; return the UIDs of the pods that wait for it."""
        gang = self._gang(key)
        gang.set_group(source, group)
        self._tidy(gang)
        return list(gang.waiting)


def _claim_of(pod: Pod) -> _Claim | None:
    name = pod.metadata.annotations.get(CLAIM)
    return (pod.metadata.namespace, name) if name is not None else None
