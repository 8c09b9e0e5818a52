"""The GpuClaims of a cluster; a cluster that does not define the kind has none."""

from cli.kube.client import Client
from cluster.errors import NotFoundError
from cluster.gpu_claim import GpuClaim
from cluster.resource import GPU_CLAIMS


def read(client: Client) -> list[GpuClaim]:
    """Return the claims of all namespaces."""
    try:
        return client.list(GPU_CLAIMS, GpuClaim)
    except NotFoundError:
        return []


def find(client: Client, name: str, *, namespace: str) -> GpuClaim | None:
    """Return a claim, or None if it does not exist."""
    try:
        return client.get(GPU_CLAIMS, GpuClaim, name=name, namespace=namespace)
    except NotFoundError:
        return None
