"""What agents report of their nodes."""

from cli.errors import NotInstalledError
from cli.kube.client import Client
from cluster.errors import NotFoundError
from cluster.gpu_node_status import GpuNodeStatus
from cluster.resource import GPU_NODE_STATUSES


def gpu_node_statuses(client: Client) -> list[GpuNodeStatus]:
    """Return the reports of all agents.

    Raises:
        NotInstalledError: the cluster does not define the resource.
    """
    try:
        return client.list(GPU_NODE_STATUSES, GpuNodeStatus)
    except NotFoundError:
        raise NotInstalledError from None
