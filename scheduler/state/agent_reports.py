"""What the agents of nodes report, passed on to what counts cards by it and to what closes nodes by it."""

from cluster.gpu_node_status import GpuNodeStatus
from scheduler.dra.node_allocators import NodeAllocators
from scheduler.mig.requests import InstanceRequests
from scheduler.queue.queueing_hints import ClusterEvent
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.agent_leases import AgentLeases
from scheduler.state.deliveries import Deliveries
from scheduler.state.inventories import Inventories
from scheduler.state.node_problems import NodeProblems
from scheduler.state.plugin_nodes import PluginNodes


class AgentReports:
    """The handlers of GpuNodeStatuses."""

    def __init__(
        self,
        *,
        inventories: Inventories,
        agent_leases: AgentLeases,
        plugin_nodes: PluginNodes,
        deliveries: Deliveries,
        node_problems: NodeProblems,
        node_allocators: NodeAllocators,
        instance_requests: InstanceRequests,
        queue: SchedulingQueue,
    ) -> None:
        """Update all of these, and notify `queue` of what may help its pods."""
        self._inventories = inventories
        self._agent_leases = agent_leases
        self._plugin_nodes = plugin_nodes
        self._deliveries = deliveries
        self._node_problems = node_problems
        self._node_allocators = node_allocators
        self._instance_requests = instance_requests
        self._queue = queue

    def set(self, status: GpuNodeStatus, old: GpuNodeStatus | None = None) -> None:
        """Set the report of an agent, which has no status yet just after it was created."""
        node = status.metadata.name
        self._agent_leases.track(node)
        self._plugin_nodes.set_agent(node)
        inventory = status.inventory() if status.status is not None else None
        has_changed = self._inventories.report(node, inventory)
        takes_others = self._deliveries.set_status(status)
        self._node_problems.set_status(status)
        self._node_allocators.set_status(status)
        self._instance_requests.set_status(status)
        if has_changed:
            self._queue.notify(ClusterEvent.CARDS_CHANGED)
        if old is None or takes_others:  # it may take pods that it alone rejected
            self._queue.notify(ClusterEvent.NODE_OPENED)

    def drop(self, status: GpuNodeStatus) -> None:
        """Forget the report of an agent."""
        node = status.metadata.name
        self._agent_leases.untrack(node)
        self._plugin_nodes.drop_agent(node)
        self._deliveries.drop(node)
        self._node_problems.drop(node)
        self._node_allocators.drop(node)
        if self._inventories.report(node, None):
            self._queue.notify(ClusterEvent.CARDS_CHANGED)
        self._instance_requests.drop_status(node)
        self._queue.notify(ClusterEvent.NODE_OPENED)  # the node needs no renewed Lease any more
