"""The nodes and the pods on them: what each node has of CPU, memory, pod slots and ports, and what its pods use."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, KeysView, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from scheduler.filters import resources
from scheduler.filters.affinity_terms import Namespaces
from scheduler.filters.host_ports import HostPort, host_ports
from scheduler.filters.network_blocks import NetworkBlocks
from scheduler.filters.node_index import NodeIndex
from scheduler.filters.node_labels import NodeLabels
from scheduler.filters.pod_index import IndexedPod, PodIndex
from scheduler.filters.resources import Amounts
from scheduler.filters.scored_requests import ScoredRequests
from scheduler.gangs.gangs import Gangs
from scheduler.objects import Node, Pod
from scheduler.pod_spec.shared_values import shared
from scheduler.settings import NETWORK_LEVELS


class _PodInfo(msgspec.Struct, frozen=True):
    """A pod on a node; `assumed` until the API server shows it there."""

    name: str
    node: str
    amounts: Mapping[str, int]
    ports: frozenset[HostPort]
    indexed: IndexedPod
    assumed: bool


class NodeCache:
    """All nodes and the pods on them; NodeFilter says which pods a node takes.

    Attributes:
        nodes: all nodes by name.
        allocatable: what each node offers its pods.
        used: what the pods of a node use, for nodes that had a pod once, even if they do not exist.
        counted: the resource of which only nodes with a device plugin have any: the ledger counts it on others.
        advertising: the nodes whose device plugin advertises `counted`.
        namespaces: the labels of each namespace.
        pod_index: the pods on nodes by namespace and labels.
        labels: the nodes by their labels.
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
        scores_resources: bool = False,
        network_levels: Sequence[str] = NETWORK_LEVELS,
    ) -> None:
        """Count all resources except those named in `ours`, which the ledger counts.

        `on_change` is called with each node that changes, and whether the only change is that a pod came to it. If
        `scores_resources`, CPU and memory are also summed as preferences count them. The labels `network_levels` name
        network blocks, the widest first.
        """
        self._on_change = on_change
        self._ours = tuple(ours)
        self._nodes: dict[str, Node] = {}
        self._allocatable: dict[str, Amounts] = {}
        self._used: dict[str, Amounts] = {}
        self._advertising: set[str] = set()
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._pods: dict[str, _PodInfo] = {}
        self._on_node: dict[str, dict[str, _PodInfo]] = {}
        self._last_requests: tuple[Pod, Mapping[str, int], frozenset[HostPort]] | None = None
        self.nodes: Mapping[str, Node] = self._nodes
        self.allocatable: Mapping[str, Amounts] = self._allocatable
        self.used: Mapping[str, Amounts] = self._used
        self.counted = counted
        self.advertising: AbstractSet[str] = self._advertising
        self.namespaces: Namespaces = self._namespaces
        self.pod_index = PodIndex()
        self.labels = NodeLabels(self.nodes)
        self.index = NodeIndex()
        self.network = NetworkBlocks(network_levels)
        self.gangs = Gangs()
        self.scored_requests = ScoredRequests() if scores_resources else None

    def __contains__(self, node: str) -> bool:
        """Whether a node of this name exists."""
        return node in self.nodes

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self.nodes)

    @property
    def names(self) -> KeysView[str]:
        """The names of all nodes."""
        return self.nodes.keys()

    def has_label(self, key: str, value: str) -> bool:
        """Whether any node has a label."""
        return any(node.metadata.labels.get(key) == value for node in self.nodes.values())

    # ---- changes ---------------------------------------------------------------------------------------------------

    def set_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Set the labels of a namespace."""
        self._namespaces[name] = labels

    def drop_namespace(self, name: str) -> None:
        """Forget a namespace."""
        self._namespaces.pop(name, None)

    def set_node(self, node: Node) -> None:
        """Set the state of a node."""
        self.labels.replace(self.nodes.get(node.metadata.name), node)
        self._remove_from_index(node.metadata.name)
        self.index.add(node)
        self.network.set_node(node.metadata.name, node.metadata.labels)
        self._nodes[node.metadata.name] = node
        self._allocatable[node.metadata.name] = resources.allocatable(node.status.allocatable)
        if self.counted in node.status.allocatable:
            self._advertising.add(node.metadata.name)
        else:
            self._advertising.discard(node.metadata.name)
        self._on_change(node.metadata.name, False)  # noqa: FBT003 -- the signature of the callback

    def drop_node(self, name: str) -> None:
        """Forget a node."""
        self._remove_from_index(name)
        self.labels.replace(self._nodes.pop(name, None), None)
        self.network.set_node(name, {})
        self._allocatable.pop(name, None)
        self._advertising.discard(name)
        self._on_change(name, False)  # noqa: FBT003

    def add_pod(self, pod: Pod, node: str, *, assumed: bool = False) -> None:
        """Count a pod that runs on `node`, or, if `assumed`, is being bound to it."""
        self.remove_pod(pod.uid)
        amounts, ports = self.requests(pod)
        info = _PodInfo(pod.metadata.name, node, amounts, ports, self.pod_index.add(pod, node), assumed)
        self._pods[pod.uid] = info
        self._on_node.setdefault(node, {})[pod.uid] = info
        used = self._used.setdefault(node, {})
        for name, amount in amounts.items():
            used[name] = used.get(name, 0) + amount
        if self.scored_requests is not None:
            self.scored_requests.add(pod, node)
        self.gangs.add(pod, node)
        self._on_change(node, True)  # noqa: FBT003

    def remove_pod(self, uid: str) -> None:
        """Stop counting a pod."""
        info = self._pods.pop(uid, None)
        if info is None:
            return
        self.pod_index.remove(info.indexed)
        del self._on_node[info.node][uid]
        used = self._used[info.node]
        for name, amount in info.amounts.items():
            used[name] -= amount
        if self.scored_requests is not None:
            self.scored_requests.remove(uid)
        self.gangs.remove(uid)
        self._on_change(info.node, False)  # noqa: FBT003

    # ---- pods ------------------------------------------------------------------------------------------------------

    def is_assumed(self, uid: str) -> bool:
        """Whether a pod is counted on a node on which the API server does not show it yet."""
        info = self._pods.get(uid)
        return info is not None and info.assumed

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

    def requests(self, pod: Pod) -> tuple[Mapping[str, int], frozenset[HostPort]]:
        """Return the resources and host ports of a pod, kept because one decision needs them several times."""
        if self._last_requests is None or self._last_requests[0] is not pod:
            self._last_requests = (pod, shared(resources.requests(pod, ours=self._ours)), host_ports(pod.spec))
        return self._last_requests[1:]

    def ports_on(self, node: str, *, without: Collection[str] = ()) -> set[HostPort]:
        """Return the host ports of the pods on a node, without the pods of some UIDs."""
        pods = self._on_node.get(node, {}).items()
        return {port for uid, info in pods if uid not in without for port in info.ports}

    def used_on(self, node: str, *, without: Collection[str] = ()) -> Amounts:
        """Return what the pods of a node use of it, without the pods of some UIDs."""
        used, pods = self.used.get(node, {}), self._on_node.get(node, {})
        leaving = [pods[uid].amounts for uid in without if uid in pods]
        if not leaving:
            return used
        left = dict(used)
        for amounts in leaving:
            for name, amount in amounts.items():
                left[name] -= amount
        return left

    def by_node(self, uids: Iterable[str]) -> Mapping[str, Collection[str]]:
        """Return the pods of some UIDs by their nodes."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for uid in uids:
            if uid in self._pods:
                found[self._pods[uid].node].add(uid)
        return found

    def _remove_from_index(self, name: str) -> None:
        if name in self.nodes:
            self.index.remove(self.nodes[name])
