"""The nodes as kube-scheduler sees them: who may run there, and what of CPU, memory, pods and ports is left."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from scheduler import affinity, resources, selectors, spread
from scheduler.objects import Node, Pod, PodSpec
from scheduler.pod_terms import Namespaces
from scheduler.population import Member, Population
from scheduler.resources import Amounts

HostPort = tuple[str, str, int]
"""Address, protocol, port."""

_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 -- compared with, not bound to


class _Tenant(msgspec.Struct, frozen=True):
    node: str
    amounts: Amounts
    ports: frozenset[HostPort]
    member: Member
    assumed: bool


class _Rule(Protocol):
    """What the other pods ask of a node for one pod, prepared once for all nodes."""

    def refusal(self, labels: Mapping[str, str]) -> str:
        """Answer why a node with these labels is refused, empty where it is not."""


class Sorting(msgspec.Struct, frozen=True):
    """Nodes that take a pod, and why the others do not."""

    fitting: list[str]
    refusals: dict[str, str]


class PodClass(msgspec.Struct, frozen=True):
    """What of a pod decides where it may run, but for its cards and its neighbours.

    Attributes:
        spec: of any pod of the class.
        need: what it takes of its node.
        ports: the host ports among it.
        key: the same for all pods of the class, and for no other.
    """

    spec: PodSpec
    need: Amounts
    ports: frozenset[HostPort]
    key: bytes


_encoder = msgspec.msgpack.Encoder(order="deterministic")


class Fleet:
    """Nodes, and the sums of what pods take of them."""

    def __init__(
        self, *, ours: Iterable[str], counted: str = "", on_change: Callable[[str, bool], None] = lambda *_: None
    ) -> None:
        """Count everything but the resources named in `ours`, which the ledger counts.

        Our nodes advertise none of the resource `counted`; see `shortages` for those that do. `on_change` is told a
        node of which anything changed, and whether it is only that something of it was taken.
        """
        self._on_change = on_change
        self._ours = tuple(ours)
        self._counted = counted
        self._advertising: set[str] = set()
        self._nodes: dict[str, Node] = {}
        self._allocatable: dict[str, Amounts] = {}
        self._taken: dict[str, Amounts] = {}
        self._tenants: dict[str, _Tenant] = {}
        self._on_node: dict[str, dict[str, _Tenant]] = {}
        self._population = Population()
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._weighed: tuple[Pod, Amounts, frozenset[HostPort]] | None = None

    def __contains__(self, node: str) -> bool:
        """Whether there is a node of this name."""
        return node in self._nodes

    @property
    def namespaces(self) -> Namespaces:
        """The labels of each namespace."""
        return self._namespaces

    def set_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Take a namespace's present labels."""
        self._namespaces[name] = labels

    def drop_namespace(self, name: str) -> None:
        """Forget a namespace."""
        self._namespaces.pop(name, None)

    def set_node(self, node: Node) -> None:
        """Take a node's present state."""
        self._nodes[node.metadata.name] = node
        self._allocatable[node.metadata.name] = resources.allocatable(node.status.allocatable)
        if self._counted in node.status.allocatable:
            self._advertising.add(node.metadata.name)
        else:
            self._advertising.discard(node.metadata.name)
        self._on_change(node.metadata.name, False)  # noqa: FBT003 -- what the callback says

    def drop_node(self, name: str) -> None:
        """Forget a node."""
        self._nodes.pop(name, None)
        self._allocatable.pop(name, None)
        self._advertising.discard(name)
        self._on_change(name, False)  # noqa: FBT003

    def shortages(self, count: int) -> dict[str, str]:
        """Answer the nodes with a device plugin that advertises too few for `count` more, and how many it does.

        The kubelet of such a node refuses what goes beyond that number (testbed.md, fact 9).
        """
        return {
            name: f"Insufficient {self._counted}: the node's device plugin advertises"
            f" {self._allocatable[name][self._counted]}"
            for name in self._advertising
            if self.is_short(name, count)
        }

    def is_short(self, name: str, count: int) -> bool:
        """Whether a node has a device plugin that advertises too few for `count` more."""
        if name not in self._advertising:
            return False
        return count > self._allocatable[name][self._counted] - self._taken.get(name, {}).get(self._counted, 0)

    def settle(self, pod: Pod, node: str, *, assumed: bool = False) -> None:
        """Count a pod that runs on `node`, or, `assumed`, is about to."""
        self.leave(pod.uid)
        amounts, ports = self._needs(pod)
        tenant = _Tenant(
            node=node,
            amounts=amounts,
            ports=ports,
            member=self._population.join(pod, node),
            assumed=assumed,
        )
        self._tenants[pod.uid] = tenant
        self._on_node.setdefault(node, {})[pod.uid] = tenant
        taken = self._taken.setdefault(node, {})
        for name, amount in tenant.amounts.items():
            taken[name] = taken.get(name, 0) + amount
        self._on_change(node, True)  # noqa: FBT003

    def forget(self, uid: str) -> None:
        """Undo an assumption. A pod that is known to run stays."""
        tenant = self._tenants.get(uid)
        if tenant is not None and tenant.assumed:
            self.leave(uid)

    def leave(self, uid: str) -> None:
        """Stop counting a pod."""
        tenant = self._tenants.pop(uid, None)
        if tenant is None:
            return
        self._population.leave(tenant.member)
        del self._on_node[tenant.node][uid]
        taken = self._taken[tenant.node]
        for name, amount in tenant.amounts.items():
            taken[name] -= amount
        self._on_change(tenant.node, False)  # noqa: FBT003

    def home(self, uid: str) -> str:
        """Answer the node on which a pod is counted, empty where it is not."""
        tenant = self._tenants.get(uid)
        return tenant.node if tenant is not None else ""

    def pods_on(self, node: str) -> int:
        """Count the pods of a node."""
        return len(self._on_node.get(node, ()))

    def __len__(self) -> int:
        """Count the nodes."""
        return len(self._nodes)

    def class_of(self, pod: Pod) -> PodClass | None:
        """Answer the class of a pod, None where its neighbours matter."""
        if self._rules(pod):
            return None
        spec, (need, ports) = pod.spec, self._needs(pod)
        nodes = spec.affinity.node_affinity if spec.affinity is not None else None
        # A set has no order of its own.
        key = (spec.node_name, spec.node_selector, nodes, spec.tolerations, need, sorted(ports))
        return PodClass(spec, need, ports, _encoder.encode(key))

    def admits(self, pods: PodClass, node: str) -> bool:
        """Whether a node takes a pod of this class."""
        known = self._nodes.get(node)
        return known is not None and not self._refusal(pods.spec, known, pods.need, pods.ports)

    def is_open_to(self, pod: Pod, node: str) -> bool:
        """Whether a node would take a pod if no other pod ran anywhere."""
        known, (need, _) = self._nodes.get(node), self._needs(pod)
        return known is not None and not self._refusal(pod.spec, known, need, frozenset(), taken={})

    def sort(self, pod: Pod) -> Sorting:
        """Judge every node for `pod`; refusals are in kube-scheduler's words."""
        need, ports = self._needs(pod)
        rules = self._rules(pod)
        fitting: list[str] = []
        refused: dict[str, str] = {}
        for name, node in self._nodes.items():
            reason = self._refusal(pod.spec, node, need, ports)
            for rule in rules:
                reason = reason or rule.refusal(node.metadata.labels)
            if reason:
                refused[name] = reason
            else:
                fitting.append(name)
        return Sorting(fitting, refused)

    def _needs(self, pod: Pod) -> tuple[Amounts, frozenset[HostPort]]:
        """Answer what a pod takes of its node; a decision asks several times, so the last answer is remembered."""
        if self._weighed is None or self._weighed[0] is not pod:
            self._weighed = (pod, resources.requests(pod, ours=self._ours), _host_ports(pod.spec))
        return self._weighed[1:]

    def _rules(self, pod: Pod) -> list[_Rule]:
        rules: tuple[_Rule | None, ...] = (
            spread.rule(pod, population=self._population, nodes=self._nodes),
            affinity.rule(pod, population=self._population, nodes=self._nodes, namespaces=self._namespaces),
        )
        return [rule for rule in rules if rule is not None]

    def _refusal(
        self, spec: PodSpec, node: Node, need: Amounts, ports: frozenset[HostPort], *, taken: Amounts | None = None
    ) -> str:
        """Answer why a node refuses a pod, empty where it does not; what pods have `taken` of it is known by itself."""
        name = node.metadata.name
        if spec.node_name not in ("", name):
            return "node didn't match the requested node name"
        if node.spec.unschedulable and not selectors.bears_cordon(spec):
            return "node was unschedulable"
        taint = selectors.untolerated_taint(spec, node)
        if taint is not None:
            return f"node had untolerated taint {{{taint.key}: {taint.value}}}"
        if not selectors.matches_selector(spec, node):
            return "node didn't match Pod's node affinity/selector"
        free = self._allocatable[name]
        taken = self._taken.get(name, {}) if taken is None else taken
        for resource, amount in need.items():
            if resource != self._counted and amount > free.get(resource, 0) - taken.get(resource, 0):
                return "Too many pods" if resource == resources.PODS else f"Insufficient {resource}"
        if ports and any(_collide(mine, other) for mine in ports for other in self._ports(name)):
            return "node didn't have free ports for the requested pod ports"
        return ""

    def _ports(self, node: str) -> set[HostPort]:
        return {port for tenant in self._on_node.get(node, {}).values() for port in tenant.ports}


def _host_ports(spec: PodSpec) -> frozenset[HostPort]:
    return frozenset(
        (port.host_ip or _ANY_ADDRESS, port.protocol, port.host_port)
        for container in (*spec.containers, *(each for each in spec.init_containers if each.restart_policy == "Always"))
        for port in container.ports
        if port.host_port
    )


def _collide(left: HostPort, right: HostPort) -> bool:
    return left[1:] == right[1:] and (left[0] == right[0] or _ANY_ADDRESS in (left[0], right[0]))
