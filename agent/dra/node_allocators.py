"""The allocators of all nodes that this agent serves: almost always one, and in a lab a whole fleet."""

from collections.abc import Callable
from typing import Literal

from agent.dra.node_allocator import NodeAllocator
from agent.dra.node_view import NodeView
from agent.publishing.published_state import Node, read_status
from agent.report import NodeReport
from cluster.api import Api


class NodeAllocators:
    """An allocator for each node, which begins where an earlier process left it."""

    def __init__(
        self,
        api: Api,
        *,
        setting: Literal["ledger", "dra", "label"],
        on_change: Callable[[], None],
        settle_seconds: float,
    ) -> None:
        """Take nodes where `setting` says, or their labels; `on_change` is called when a node is to be published.

        A slice has to be closed, and then gone, for `settle_seconds` before the next step.
        """
        self._api = api
        self._setting = setting
        self._on_change = on_change
        self._settle_seconds = settle_seconds
        self._nodes: dict[str, NodeAllocator] = {}
        self._restored: set[str] = set()

    def of(self, node: str) -> NodeAllocator:
        """Return the allocator of a node."""
        found = self._nodes.get(node)
        if found is None:
            found = self._nodes[node] = NodeAllocator(
                NodeView(self._api, node), node=node, on_change=self._on_change, settle_seconds=self._settle_seconds
            )
            if self._setting != "label":
                found.set_wanted(self._setting)
        return found

    async def with_allocator(self, report: NodeReport) -> NodeReport:
        """Return the report of a node with its allocator, which at first is read from the published status.

        Raises:
            ClusterError: it cannot be read.
        """
        own = self.of(report.node)
        if report.node not in self._restored:
            own.restore(await read_status(self._api, report.node))
            self._restored.add(report.node)
        return own.with_allocator(report)

    def is_needed(self, node: str) -> bool:
        """Whether the allocator of a node may have to do anything: the setting says so, or it is not the ledger."""
        return self._setting != "ledger" or self.of(node).allocator != "ledger"

    def set_node(self, name: str, node: Node | None) -> None:
        """Set the labels and the cordon of a Node; None if it does not exist, which says nothing."""
        if node is None:
            return
        own = self.of(name)
        own.set_node(node.metadata.uid, node.cordoned)
        if self._setting == "label":
            own.set_wanted("dra" if node.wanted_allocator == "dra" else "ledger")

    def set_published(self, report: NodeReport) -> None:
        """Note that the API server has a report."""
        self.of(report.node).set_published(report)

    def wake(self, node: str) -> None:
        """Look again at a node, of which the scheduler may have confirmed something."""
        if node in self._nodes:
            self._nodes[node].wake()

    def forget(self, node: str) -> None:
        """Forget a node that is not served any more."""
        self._nodes.pop(node, None)
        self._restored.discard(node)
