"""The address of each node's agent, from its pod."""

import ipaddress
from collections import defaultdict
from typing import Final

import msgspec

from allocation.names import SYSTEM_NAMESPACE
from cluster.api import Api
from cluster.informer import Informer
from cluster.metadata import ObjectMeta
from cluster.resource import PODS

LABELS: Final = "app.kubernetes.io/name=tranche,app.kubernetes.io/component=agent"
_PORT_NAME: Final = "metrics"


class ContainerPort(msgspec.Struct, rename="camel"):
    """A named port."""

    name: str = ""
    container_port: int = 0


class AgentContainer(msgspec.Struct):
    """A container with its ports."""

    ports: tuple[ContainerPort, ...] = ()


class AgentSpec(msgspec.Struct, rename="camel"):
    """The node and the ports of an agent."""

    node_name: str = ""
    containers: tuple[AgentContainer, ...] = ()


class AgentStatus(msgspec.Struct, rename={"pod_ip": "podIP"}):
    """The IP address of an agent."""

    pod_ip: str = ""


class AgentPod(msgspec.Struct):
    """The pod of an agent, as far as its address depends on it."""

    metadata: ObjectMeta
    spec: AgentSpec = msgspec.field(default_factory=AgentSpec)
    status: AgentStatus = msgspec.field(default_factory=AgentStatus)

    @property
    def address(self) -> str:
        """The host and port of its metrics for a URL; empty if it has none, or one that no pod can have.

        The kubelet writes the IP address: one that lies must not have the scheduler call its own host.
        """
        ports = [port.container_port for each in self.spec.containers for port in each.ports if port.name == _PORT_NAME]
        try:
            ip = ipaddress.ip_address(self.status.pod_ip)
        except ValueError:
            return ""
        if not ports or ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified:
            return ""
        return f"[{ip}]:{ports[0]}" if ip.version == 6 else f"{ip}:{ports[0]}"


class AgentPods:
    """The pods of the agents, by node."""

    def __init__(self, api: Api, *, relist_seconds: float) -> None:
        """Watch the pods with the agents' labels in Tranche's namespace."""
        self._by_node: defaultdict[str, dict[str, AgentPod]] = defaultdict(dict)
        self.informer = Informer(
            api,
            PODS,
            AgentPod,
            on_upsert=lambda pod, _: self.set_pod(pod),
            on_delete=self.drop_pod,
            namespace=SYSTEM_NAMESPACE,
            selectors={"labelSelector": LABELS},
            relist_seconds=relist_seconds,
        )

    def address(self, node: str) -> str:
        """Return the address of a node's agent; empty without one. While a new one starts, it may be either."""
        addresses = (pod.address for pod in self._by_node.get(node, {}).values())
        return next((address for address in addresses if address), "")

    def set_pod(self, pod: AgentPod) -> None:
        """Add a pod, or replace it: its node never changes once it has one."""
        if pod.spec.node_name:
            self._by_node[pod.spec.node_name][pod.metadata.name] = pod

    def drop_pod(self, pod: AgentPod) -> None:
        """Remove a pod."""
        pods = self._by_node.get(pod.spec.node_name, {})
        pods.pop(pod.metadata.name, None)
        if not pods:
            self._by_node.pop(pod.spec.node_name, None)
