"""Filters nodes as kube-scheduler does: which nodes admit a pod by their spec, resources, ports, volumes and pods."""

import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from allocation.reasons import NodeReason, NodeRejection
from allocation.steps import Steps
from scheduler import selectors
from scheduler.filters import affinity_terms, gang_block, inter_pod_affinity, resources, topology_spread
from scheduler.filters.digest import digest
from scheduler.filters.host_ports import HostPort, collide
from scheduler.filters.node_cache import NodeCache
from scheduler.filters.resources import Amounts
from scheduler.objects import Node, Pod
from scheduler.pod_spec.spec import PodSpec
from scheduler.selectors import Matcher
from scheduler.volumes.bindings import NO_BINDINGS, VolumeBindings
from scheduler.volumes.pod_volumes import PodVolumes, UnboundClaims, VolumeRequirements
from scheduler.volumes.volume_cache import VolumeCache

_STEP = 32
"""Nodes that are filtered between two interruptions: some milliseconds for the largest pods that are evaluated."""
_RULED = 256
"""Nodes that rules about other pods are evaluated for in one step: up to 20 µs each for the largest pods."""
_FEW = 64
"""Nodes that are evaluated one by one faster than a class of pods is kept up to date."""

_NO_PODS: Final[Mapping[str, Sequence[Pod]]] = {}
"""No pods on any node."""
_OTHER_NAME: Final = NodeRejection(
    NodeReason.NodeNameMismatch, "node didn't match the requested node name", resolvable=False
)
_UNSCHEDULABLE: Final = NodeRejection(NodeReason.NodeUnschedulable, "node was unschedulable", resolvable=False)
_NOT_SELECTED: Final = NodeRejection(
    NodeReason.NodeSelectorMismatch, "node didn't match Pod's node affinity/selector", resolvable=False
)
_PORT_TAKEN: Final = NodeRejection(NodeReason.NodePortTaken, "node didn't have free ports for the requested pod ports")


class _Rule(Protocol):
    """What a pod's relation to other pods requires of a node, prepared once for all nodes."""

    def rejection(self, node: Node) -> NodeRejection | None:
        """Return why a node does not take the pod, or None where it does."""


class FilteredNodes(msgspec.Struct, frozen=True):
    """The nodes that take a pod, and the rejections by the others.

    A rejection is resolvable where the node might take the pod if other pods left: never for the pod's affinity, which
    only pods that come can satisfy; always for other rules about pods, without a look at which would have to leave.
    """

    fitting: list[str]
    rejections: dict[str, NodeRejection]


class _Requirements(msgspec.Struct, frozen=True):
    """What a pod requires of each node, whatever other pods run, compiled once for many nodes.

    Attributes:
        spec: the spec of the pod.
        amounts: the resources that it uses.
        ports: its host ports.
        matches: its nodeSelector and required node affinity.
        tolerates_unschedulable: whether it may run on a node that is marked unschedulable.
        volumes: what its bound volumes require; None if nothing.
        unbound: its unbound claims; None if it has none, or if they are not evaluated.
    """

    spec: PodSpec
    amounts: Mapping[str, int]
    ports: frozenset[HostPort]
    matches: Matcher
    tolerates_unschedulable: bool
    volumes: VolumeRequirements | None = None
    unbound: UnboundClaims | None = None


class EquivalenceClass(msgspec.Struct, frozen=True):
    """Pods with equal requirements of nodes, apart from cards and other pods.

    Attributes:
        spec: the spec of any pod of the class.
        amounts: the resources that each pod uses.
        ports: the host ports of each pod.
        volumes: what the bound volumes of each pod require; None if nothing.
        key: equal for pods of the class, and different for all others.
    """

    spec: PodSpec
    amounts: Mapping[str, int]
    ports: frozenset[HostPort]
    volumes: VolumeRequirements | None
    key: bytes


class NodeFilter:
    """Which nodes of a node cache admit a pod, and why others do not."""

    def __init__(self, node_cache: NodeCache, *, volumes: VolumeCache | None = None) -> None:
        """Filter the nodes of `node_cache`; without `volumes`, every node takes every volume.

        Nodes with an agent do not advertise the resource `node_cache.counted`; see `shortages` for those that do.
        """
        self._cache = node_cache
        self._volumes = volumes
        self._counted = node_cache.counted
        # Read for each node of each decision, so without a way over the cache.
        self._nodes = node_cache.nodes
        self._allocatable = node_cache.allocatable
        self._used = node_cache.used
        self._advertising = node_cache.advertising

    def equivalence_class(self, pod: Pod) -> EquivalenceClass:
        """Return the equivalence class of a pod."""
        spec, (amounts, ports) = pod.spec, self._cache.requests(pod)
        affinity = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
        volumes = self.volumes_of(pod)
        needs = volumes.requirements if volumes is not None else None
        key = (
            spec.node_name,
            spec.node_selector,
            affinity,
            spec.tolerations,
            amounts,
            sorted(ports),
            needs.key if needs is not None else None,
        )
        return EquivalenceClass(spec, amounts, ports, needs, digest(key))

    def volumes_of(self, pod: Pod) -> PodVolumes | None:
        """Return what the volumes of a pod require of its node; None if nothing."""
        return self._volumes.of_pod(pod) if pod.spec.volumes and self._volumes is not None else None

    def volume_bindings(self, pod: Pod, node: str) -> VolumeBindings | None:
        """Return what the unbound claims of a pod get on a node, or None if one of them gets nothing there."""
        volumes = self.volumes_of(pod)
        if volumes is None or volumes.unbound is None:
            return NO_BINDINGS
        found = volumes.unbound.find(self._nodes[node])
        return found if isinstance(found, VolumeBindings) else None

    def few_candidates(self, pod: Pod) -> list[str] | None:
        """Return the only nodes that have the volumes of a pod, sorted, or None unless they are few."""
        volumes = self.volumes_of(pod)
        if volumes is None:
            return None
        choices = [self._cache.labels.nodes_with(labels) for labels in volumes.labels]
        if volumes.unbound is not None and volumes.unbound.selected:
            choices.append(set(volumes.unbound.selected))
        fewest = min(choices, key=len, default=None)
        return sorted(fewest) if fewest is not None and len(fewest) <= _FEW else None

    def depends_on_other_pods(self, pod: Pod) -> bool:
        """Whether rules about other pods, its own or theirs, restrict the nodes of a pod."""
        if topology_spread.strict(pod) or affinity_terms.affinity(pod) or affinity_terms.anti_affinity(pod):
            return True
        if gang_block.rule(pod, gangs=self._cache.gangs, nodes=self._nodes) is not None:
            return True
        return any(True for _ in self._cache.pod_index.repelling(pod, self._cache.namespaces))

    def admission(self, pods: EquivalenceClass) -> Callable[[str], bool]:
        """Return the test whether a node, given by name, takes pods of this class now."""
        requirements = _requirements(pods.spec, pods.amounts, pods.ports, volumes=pods.volumes)

        def admits(name: str) -> bool:
            node = self._nodes.get(name)
            return node is not None and self._rejection(requirements, node) is None

        return admits

    def individual_admission(self, pod: Pod) -> tuple[Callable[[str], bool], int] | None:
        """Return the test whether a node that takes the pod's class takes the pod, too, as long as nothing changes.

        With it comes how many nodes may be tested in one step. None if each node takes it: what differs among pods of
        a class are the volumes that unbound claims get, and rules about other pods.
        """
        volumes = self.volumes_of(pod)
        unbound = volumes.unbound if volumes is not None else None
        rules = self._rules(pod) if self.depends_on_other_pods(pod) else ()
        if unbound is None and not rules:
            return None

        def admits(name: str) -> bool:
            node = self._nodes[name]
            is_refused = any(rule.rejection(node) is not None for rule in rules)
            return not is_refused and self.volume_bindings(pod, name) is not None

        return admits, _STEP if unbound is not None else _RULED

    def filter(
        self,
        pod: Pod,
        names: Iterable[str] | None = None,
        *,
        without: Collection[str] = (),
        added: Mapping[str, Sequence[Pod]] = _NO_PODS,
    ) -> Steps[FilteredNodes]:
        """Filter the nodes `names`, or all nodes, for `pod`; rejections are in kube-scheduler's words.

        The resources and ports of the pods `without`, given by UID, are taken to be free. Their volumes, and what
        other pods require of their labels, stay. Those of the pods `added` to some nodes are taken to be in use.
        """
        volumes = self.volumes_of(pod)
        requirements = _requirements(
            pod.spec,
            *self._cache.requests(pod),
            volumes=volumes.requirements if volumes is not None else None,
            unbound=volumes.unbound if volumes is not None else None,
        )
        rules, gone = self._rules(pod), self._cache.by_node(without)
        fitting: list[str] = []
        rejections: dict[str, NodeRejection] = {}
        for position, name in enumerate(tuple(self._nodes if names is None else names)):
            if position % _STEP == _STEP - 1:
                yield
            node = self._nodes.get(name)
            if node is None:
                continue
            rejection = self._rejection(
                requirements, node, gone.get(name, ()) if gone else (), added.get(name, ()) if added else ()
            )
            for rule in rules:
                if rejection is None:
                    rejection = rule.rejection(node)
            if rejection is None:
                fitting.append(name)
            else:
                rejections[name] = rejection
        return FilteredNodes(fitting, rejections)

    def shortages(self, count: int, *, without: Collection[str] = ()) -> dict[str, NodeRejection]:
        """Return the rejections by the nodes whose device plugin advertises too few devices for `count` more.

        The kubelet of such a node rejects pods beyond that number (docs/hami.md). `without` are the UIDs of pods
        that are taken to have left.
        """
        gone = self._cache.by_node(without)
        return {
            name: NodeRejection(
                NodeReason.DevicePluginFull,
                f"Insufficient {self._counted}: the node's device plugin advertises"
                f" {self._allocatable[name][self._counted]}",
            )
            for name in self._advertising
            if self.is_short(name, count, without=gone.get(name, ()))
        }

    def is_short(self, name: str, count: int, *, without: Collection[str] = ()) -> bool:
        """Whether a node has a device plugin that advertises too few devices for `count` more."""
        if name not in self._advertising:
            return False
        return count > self._allocatable[name][self._counted] - self._cache.used_on(name, without=without).get(
            self._counted, 0
        )

    def _rules(self, pod: Pod) -> list[_Rule]:
        rules: tuple[_Rule | None, ...] = (
            topology_spread.rule(pod, pod_index=self._cache.pod_index, nodes=self._nodes),
            inter_pod_affinity.rule(
                pod, pod_index=self._cache.pod_index, nodes=self._nodes, namespaces=self._cache.namespaces
            ),
            gang_block.rule(pod, gangs=self._cache.gangs, nodes=self._nodes),
        )
        return [rule for rule in rules if rule is not None]

    def _rejection(
        self, requirements: _Requirements, node: Node, gone: Collection[str] = (), added: Sequence[Pod] = ()
    ) -> NodeRejection | None:
        """Return why a node without the pods `gone`, and with those `added`, does not take a pod, or None.

        It does not matter which pods run on other nodes.
        """
        name, spec = node.metadata.name, requirements.spec
        if spec.node_name not in ("", name):
            return _OTHER_NAME
        if node.spec.unschedulable and not requirements.tolerates_unschedulable:
            return _UNSCHEDULABLE
        taint = selectors.untolerated_taint(spec, node) if node.spec.taints else None
        if taint is not None:
            return _tainted(taint.key, taint.value)
        if not requirements.matches(node):
            return _NOT_SELECTED
        allocatable = self._allocatable[name]
        used = self._cache.used_on(name, without=gone) if gone else self._used.get(name, {})
        used = self._with(used, added) if added else used
        for resource, amount in requirements.amounts.items():
            free = allocatable.get(resource, 0) - used.get(resource, 0)
            if resource != self._counted and amount > max(free, 0):  # an overcommitted node takes a pod that asks for 0
                return _insufficient(resource, self._is_large_enough(name, requirements.amounts))
        if requirements.ports:
            taken = self._cache.ports_on(name, without=gone).union(*(self._cache.requests(each)[1] for each in added))
            if collide(requirements.ports, taken):
                return _PORT_TAKEN
        if requirements.volumes is not None and self._volumes is not None:
            return self._volumes.rejection(requirements.volumes, node, requirements.unbound)
        return None

    def _with(self, used: Amounts, added: Iterable[Pod]) -> Amounts:
        """Return what is used, and what some more pods use."""
        total = Counter(used)
        for each in added:
            total.update(self._cache.requests(each)[0])
        return total

    def _is_large_enough(self, node: str, amounts: Mapping[str, int]) -> bool:
        """Whether a node has these amounts if no pod runs there."""
        allocatable = self._allocatable[node]
        for resource, amount in amounts.items():  # a loop, not all(): it runs for every node that is short of CPU
            if resource != self._counted and amount > allocatable.get(resource, 0):
                return False
        return True


@functools.lru_cache(1024)
def _tainted(key: str, value: str) -> NodeRejection:
    return NodeRejection(NodeReason.NodeTainted, f"node had untolerated taint {{{key}: {value}}}", resolvable=False)


@functools.lru_cache(1024)
def _insufficient(resource: str, is_large_enough: bool) -> NodeRejection:  # noqa: FBT001 -- a key of the cache
    if resource == resources.PODS:
        return NodeRejection(NodeReason.NodeTooManyPods, "Too many pods", resolvable=is_large_enough)
    return NodeRejection(NodeReason.NodeInsufficientResource, f"Insufficient {resource}", resolvable=is_large_enough)


def _requirements(
    spec: PodSpec,
    amounts: Mapping[str, int],
    ports: frozenset[HostPort],
    *,
    volumes: VolumeRequirements | None,
    unbound: UnboundClaims | None = None,
) -> _Requirements:
    tolerates_unschedulable = selectors.tolerates_unschedulable(spec)
    matches = selectors.node_matcher(spec)
    return _Requirements(spec, amounts, ports, matches, tolerates_unschedulable, volumes, unbound)
