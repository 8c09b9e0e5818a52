"""The nodes whose cards cannot be used, because their driver is gone or lists no card, as their agents report it.

And the nodes that should have an agent by their label, of which some may have none.
"""

from allocation import names
from allocation.reasons import NodeReason, NodeRejection
from cluster.gpu_node_status import GpuNodeStatus
from scheduler.filters.node_rejections import NodeRejections
from scheduler.objects import Node


class NodeProblems:
    """The problems of all nodes with an agent.

    The cards that such a node had last are reported and counted, because pods may still use them.

    Attributes:
        rejections: the rejections by these nodes.
        labelled: the nodes with a label that has the agent run there.
    """

    def __init__(self) -> None:
        self.rejections = NodeRejections()
        self.labelled: set[str] = set()

    def set_node(self, node: Node) -> None:
        """Set the labels of a node."""
        if node.metadata.labels.get(names.AGENT_LABEL) in names.AGENT_LABEL_VALUES:
            self.labelled.add(node.metadata.name)
        else:
            self.labelled.discard(node.metadata.name)

    def drop_node(self, node: str) -> None:
        """Forget a node."""
        self.labelled.discard(node)

    def set_status(self, status: GpuNodeStatus) -> None:
        """Set what an agent reports."""
        node, problem = status.metadata.name, status.problem
        if problem is None:
            self.rejections.set(node, None)
            return
        message = f"the cards of node {node} cannot be used: {problem.message}"
        self.rejections.set(node, NodeRejection(NodeReason(problem.state), message, resolvable=False))

    def drop(self, node: str) -> None:
        """Forget what the agent of a node reported."""
        self.rejections.set(node, None)
