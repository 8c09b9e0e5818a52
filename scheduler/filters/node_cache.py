"""The nodes as kube-scheduler sees them: which pods they admit, and their free CPU, memory, pod slots and ports."""

import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, KeysView, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from allocation.reasons import NodeReason, NodeRejection
from allocation.steps import Steps
from scheduler import selectors
from scheduler.filters import affinity_terms, inter_pod_affinity, resources, topology_spread
from scheduler.filters.affinity_terms import Namespaces
from scheduler.filters.digest import digest
from scheduler.filters.gangs import Gangs
from scheduler.filters.network_blocks import NetworkBlocks
from scheduler.filters.node_index import NodeIndex
from scheduler.filters.node_labels import NodeLabels
from scheduler.filters.pod_index import IndexedPod, PodIndex
from scheduler.filters.resources import Amounts
from scheduler.filters.scored_requests import ScoredRequests
from scheduler.objects import Node, Pod, PodSpec
from scheduler.selectors import Matcher
from scheduler.settings import NETWORK_LEVELS
from scheduler.volumes.bindings import NO_BINDINGS, VolumeBindings
from scheduler.volumes.pod_volumes import PodVolumes, UnboundClaims, VolumeRequirements
from scheduler.volumes.volume_cache import VolumeCache

HostPort = tuple[str, str, int]
"""Address, protocol, port."""

_STEP = 32
"""Nodes that are filtered between two interruptions: some milliseconds for the largest pods that are evaluated."""
_FEW = 64
"""Nodes that are evaluated one by one faster than a class of pods is kept up to date."""
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 -- compared with, not bound to

_OTHER_NAME: Final = NodeRejection(
    NodeReason.NodeNameMismatch, "node didn't match the requested node name", resolvable=False
)
_UNSCHEDULABLE: Final = NodeRejection(NodeReason.NodeUnschedulable, "node was unschedulable", resolvable=False)
_NOT_SELECTED: Final = NodeRejection(
    NodeReason.NodeSelectorMismatch, "node didn't match Pod's node affinity/selector", resolvable=False
)
_PORT_TAKEN: Final = NodeRejection(NodeReason.NodePortTaken, "node didn't have free ports for the requested pod ports")


class _PodInfo(msgspec.Struct, frozen=True):
    """A pod on a node; `assumed` until the API server shows it there."""

    name: str
    node: str
    amounts: Amounts
    ports: frozenset[HostPort]
    indexed: IndexedPod
    assumed: bool


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
    amounts: Amounts
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
    amounts: Amounts
    ports: frozenset[HostPort]
    volumes: VolumeRequirements | None
    key: bytes


class NodeCache:
    """All nodes, with the sums of the resources that their pods use.

    Attributes:
        index: soft taints and images, counted over all nodes.
        network: the network blocks of the nodes.
        gangs: the nodes of each gang; their claims are set from outside.
        scored_requests: CPU and memory as preferences count them; None if no preference needs them.
    """

    def __init__(
        self,
        *,
        ours: Iterable[str],
        counted: str = "",
        on_change: Callable[[str, bool], None] = lambda *_: None,
        volumes: VolumeCache | None = None,
        scores_resources: bool = False,
        network_levels: Sequence[str] = NETWORK_LEVELS,
    ) -> None:
        """Count all resources except those named in `ours`, which the ledger counts.

        Nodes with an agent do not advertise the resource `counted`; see `shortages` for those that do. `on_change` is
        called with each node that changes, and whether the only change is that a pod came to it. Without `volumes`,
        nothing is known about storage, and every node takes every volume. If `scores_resources`, CPU and memory are
        also summed as preferences count them. The labels `network_levels` name network blocks, the widest first.
        """
        self._on_change = on_change
        self._volumes = volumes
        self._ours = tuple(ours)
        self._counted = counted
        self._advertising: set[str] = set()
        self._nodes: dict[str, Node] = {}
        self._labels = NodeLabels(self._nodes)
        self._allocatable: dict[str, Amounts] = {}
        self._used: dict[str, Amounts] = {}
        self._pods: dict[str, _PodInfo] = {}
        self._on_node: dict[str, dict[str, _PodInfo]] = {}
        self._pod_index = PodIndex()
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._last_needs: tuple[Pod, Amounts, frozenset[HostPort]] | None = None
        self.index = NodeIndex()
        self.network = NetworkBlocks(network_levels)
        self.gangs = Gangs()
        self.scored_requests = ScoredRequests() if scores_resources else None

    def __contains__(self, node: str) -> bool:
        """Whether a node of this name exists."""
        return node in self._nodes

    @property
    def namespaces(self) -> Namespaces:
        """The labels of each namespace."""
        return self._namespaces

    def set_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Set the labels of a namespace."""
        self._namespaces[name] = labels

    def drop_namespace(self, name: str) -> None:
        """Forget a namespace."""
        self._namespaces.pop(name, None)

    def set_node(self, node: Node) -> None:
        """Set the state of a node."""
        self._labels.replace(self._nodes.get(node.metadata.name), node)
        self._remove_from_index(node.metadata.name)
        self.index.add(node)
        self.network.set_node(node.metadata.name, node.metadata.labels)
        self._nodes[node.metadata.name] = node
        self._allocatable[node.metadata.name] = resources.allocatable(node.status.allocatable)
        if self._counted in node.status.allocatable:
            self._advertising.add(node.metadata.name)
        else:
            self._advertising.discard(node.metadata.name)
        self._on_change(node.metadata.name, False)  # noqa: FBT003 -- the signature of the callback

    def drop_node(self, name: str) -> None:
        """Forget a node."""
        self._remove_from_index(name)
        self._labels.replace(self._nodes.pop(name, None), None)
        self.network.set_node(name, {})
        self._allocatable.pop(name, None)
        self._advertising.discard(name)
        self._on_change(name, False)  # noqa: FBT003

    def shortages(self, count: int, *, without: Collection[str] = ()) -> dict[str, NodeRejection]:
        """Return the rejections by the nodes whose device plugin advertises too few devices for `count` more.

        The kubelet of such a node rejects pods beyond that number (docs/hami.md). `without` are the UIDs of pods
        that are taken to have left.
        """
        gone = self._by_node(without)
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
        return count > self._allocatable[name][self._counted] - self._used_on(name, without).get(self._counted, 0)

    def add_pod(self, pod: Pod, node: str, *, assumed: bool = False, bindings: VolumeBindings = NO_BINDINGS) -> None:
        """Count a pod that runs on `node`, or, if `assumed`, is being bound to it with `bindings` of its volumes."""
        self._uncount(pod.uid)
        amounts, ports = self._needs(pod)
        info = _PodInfo(pod.metadata.name, node, amounts, ports, self._pod_index.add(pod, node), assumed)
        self._pods[pod.uid] = info
        self._on_node.setdefault(node, {})[pod.uid] = info
        used = self._used.setdefault(node, {})
        for name, amount in amounts.items():
            used[name] = used.get(name, 0) + amount
        if self.scored_requests is not None:
            self.scored_requests.add(pod, node)
        self.gangs.add(pod, node)
        self._on_change(node, True)  # noqa: FBT003
        if pod.spec.volumes and self._volumes is not None:
            self._volumes.add_pod(pod, node, bindings)

    def is_assumed(self, uid: str) -> bool:
        """Whether a pod is counted on a node on which the API server does not show it yet."""
        info = self._pods.get(uid)
        return info is not None and info.assumed

    def remove_pod(self, uid: str) -> None:
        """Stop counting a pod."""
        info = self._uncount(uid)
        if info is not None and self._volumes is not None:
            self._volumes.remove_pod(uid, info.node)

    def _uncount(self, uid: str) -> _PodInfo | None:
        info = self._pods.pop(uid, None)
        if info is None:
            return None
        self._pod_index.remove(info.indexed)
        del self._on_node[info.node][uid]
        used = self._used[info.node]
        for name, amount in info.amounts.items():
            used[name] -= amount
        if self.scored_requests is not None:
            self.scored_requests.remove(uid)
        self.gangs.remove(uid)
        self._on_change(info.node, False)  # noqa: FBT003
        return info

    def node_of(self, uid: str) -> str:
        """Return the node on which a pod is counted, or an empty string."""
        info = self._pods.get(uid)
        return info.node if info is not None else ""

    def cpu_and_memory(self, uid: str) -> tuple[int, int]:
        """Return the CPU in millicores and the memory in bytes of a pod that is counted on a node."""
        amounts = self._pods[uid].amounts
        return amounts.get(resources.CPU, 0), amounts.get(resources.MEMORY, 0)

    def pods_of(self, node: str) -> tuple[str, ...]:
        """Return the UIDs of the pods on a node."""
        return tuple(self._on_node.get(node, ()))

    def name_of(self, uid: str) -> str:
        """Return `namespace/name` of a pod that is counted on a node, or an empty string."""
        info = self._pods.get(uid)
        return f"{info.indexed.group.namespace}/{info.name}" if info is not None else ""

    def pods_on(self, node: str, *, without: Collection[str] = ()) -> int:
        """Return the number of pods on a node, without those of some UIDs."""
        pods = self._on_node.get(node, {})
        return len(pods) - sum(uid in pods for uid in without)

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._nodes)

    def has_label(self, key: str, value: str) -> bool:
        """Whether any node has a label."""
        return any(node.metadata.labels.get(key) == value for node in self._nodes.values())

    @property
    def names(self) -> KeysView[str]:
        """The names of all nodes."""
        return self._nodes.keys()

    def equivalence_class(self, pod: Pod) -> EquivalenceClass:
        """Return the equivalence class of a pod."""
        spec, (amounts, ports) = pod.spec, self._needs(pod)
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
        choices = [self._labels.nodes_with(labels) for labels in volumes.labels]
        if volumes.unbound is not None and volumes.unbound.selected:
            choices.append(set(volumes.unbound.selected))
        fewest = min(choices, key=len, default=None)
        return sorted(fewest) if fewest is not None and len(fewest) <= _FEW else None

    def depends_on_other_pods(self, pod: Pod) -> bool:
        """Whether rules about other pods, its own or theirs, restrict the nodes of a pod."""
        if topology_spread.strict(pod) or affinity_terms.affinity(pod) or affinity_terms.anti_affinity(pod):
            return True
        return any(True for _ in self._pod_index.repelling(pod, self._namespaces))

    def admission(self, pods: EquivalenceClass) -> Callable[[str], bool]:
        """Return the test whether a node, given by name, takes pods of this class now."""
        requirements = _requirements(pods.spec, pods.amounts, pods.ports, volumes=pods.volumes)

        def admits(name: str) -> bool:
            node = self._nodes.get(name)
            return node is not None and self._rejection(requirements, node) is None

        return admits

    def filter(
        self, pod: Pod, names: Iterable[str] | None = None, *, without: Collection[str] = ()
    ) -> Steps[FilteredNodes]:
        """Filter the nodes `names`, or all nodes, for `pod`; rejections are in kube-scheduler's words.

        The resources and ports of the pods `without`, given by UID, are taken to be free. Their volumes, and what
        other pods require of their labels, stay.
        """
        volumes = self.volumes_of(pod)
        requirements = _requirements(
            pod.spec,
            *self._needs(pod),
            volumes=volumes.requirements if volumes is not None else None,
            unbound=volumes.unbound if volumes is not None else None,
        )
        rules, gone = self._rules(pod), self._by_node(without)
        fitting: list[str] = []
        rejections: dict[str, NodeRejection] = {}
        for position, name in enumerate(tuple(self._nodes if names is None else names)):
            if position % _STEP == _STEP - 1:
                yield
            node = self._nodes.get(name)
            if node is None:
                continue
            rejection = self._rejection(requirements, node, gone.get(name, ()) if gone else ())
            for rule in rules:
                if rejection is None:
                    rejection = rule.rejection(node)
            if rejection is None:
                fitting.append(name)
            else:
                rejections[name] = rejection
        return FilteredNodes(fitting, rejections)

    def _needs(self, pod: Pod) -> tuple[Amounts, frozenset[HostPort]]:
        """Return the resources and host ports of a pod, kept because one decision needs them several times."""
        if self._last_needs is None or self._last_needs[0] is not pod:
            self._last_needs = (pod, resources.requests(pod, ours=self._ours), _host_ports(pod.spec))
        return self._last_needs[1:]

    def _rules(self, pod: Pod) -> list[_Rule]:
        rules: tuple[_Rule | None, ...] = (
            topology_spread.rule(pod, pod_index=self._pod_index, nodes=self._nodes),
            inter_pod_affinity.rule(pod, pod_index=self._pod_index, nodes=self._nodes, namespaces=self._namespaces),
        )
        return [rule for rule in rules if rule is not None]

    def _rejection(self, requirements: _Requirements, node: Node, gone: Collection[str] = ()) -> NodeRejection | None:
        """Return why a node without the pods `gone` does not take a pod, whatever pods run on other nodes, or None."""
        name, spec = node.metadata.name, requirements.spec
        if spec.node_name not in ("", name):
            return _OTHER_NAME
        if node.spec.unschedulable and not requirements.tolerates_unschedulable:
            return _UNSCHEDULABLE
        taint = selectors.untolerated_taint(spec, node)
        if taint is not None:
            return _tainted(taint.key, taint.value)
        if not requirements.matches(node):
            return _NOT_SELECTED
        allocatable = self._allocatable[name]
        used = self._used_on(name, gone) if gone else self._used.get(name, {})
        for resource, amount in requirements.amounts.items():
            free = allocatable.get(resource, 0) - used.get(resource, 0)
            if resource != self._counted and amount > max(free, 0):  # an overcommitted node takes a pod that asks for 0
                return _insufficient(resource, self._is_large_enough(name, requirements.amounts))
        if requirements.ports and any(
            _collide(mine, other) for mine in requirements.ports for other in self._ports(name, gone)
        ):
            return _PORT_TAKEN
        if requirements.volumes is not None and self._volumes is not None:
            return self._volumes.rejection(requirements.volumes, node, requirements.unbound)
        return None

    def _is_large_enough(self, node: str, amounts: Amounts) -> bool:
        """Whether a node has these amounts if no pod runs there."""
        allocatable = self._allocatable[node]
        for resource, amount in amounts.items():  # a loop, not all(): it runs for every node that is short of CPU
            if resource != self._counted and amount > allocatable.get(resource, 0):
                return False
        return True

    def _ports(self, node: str, gone: Collection[str]) -> set[HostPort]:
        pods = self._on_node.get(node, {}).items()
        return {port for uid, info in pods if uid not in gone for port in info.ports}

    def _used_on(self, node: str, gone: Collection[str]) -> Amounts:
        """Return what the pods of a node use of it, without the pods `gone`."""
        used, pods = self._used.get(node, {}), self._on_node.get(node, {})
        leaving = [pods[uid].amounts for uid in gone if uid in pods]
        if not leaving:
            return used
        left = dict(used)
        for amounts in leaving:
            for name, amount in amounts.items():
                left[name] -= amount
        return left

    def _by_node(self, uids: Iterable[str]) -> Mapping[str, Collection[str]]:
        """Return the pods of some UIDs by their nodes."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for uid in uids:
            if uid in self._pods:
                found[self._pods[uid].node].add(uid)
        return found

    # ---- for preferences -------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes, by name."""
        return self._nodes

    @property
    def pod_index(self) -> PodIndex:
        """The pods on nodes."""
        return self._pod_index

    def allocatable(self, node: str) -> Mapping[str, int]:
        """Return the allocatable amounts of a node, empty if it does not exist."""
        return self._allocatable.get(node, {})

    def _remove_from_index(self, name: str) -> None:
        if name in self._nodes:
            self.index.remove(self._nodes[name])


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
    amounts: Amounts,
    ports: frozenset[HostPort],
    *,
    volumes: VolumeRequirements | None,
    unbound: UnboundClaims | None = None,
) -> _Requirements:
    tolerates_unschedulable = selectors.tolerates_unschedulable(spec)
    matches = selectors.node_matcher(spec)
    return _Requirements(spec, amounts, ports, matches, tolerates_unschedulable, volumes, unbound)


def _host_ports(spec: PodSpec) -> frozenset[HostPort]:
    return frozenset(
        (port.host_ip or _ANY_ADDRESS, port.protocol, port.host_port)
        for container in (*spec.containers, *(each for each in spec.init_containers if each.restart_policy == "Always"))
        for port in container.ports
    )


def _collide(left: HostPort, right: HostPort) -> bool:
    return left[1:] == right[1:] and (left[0] == right[0] or _ANY_ADDRESS in (left[0], right[0]))
