"""The GPUBindings of a cluster."""

from allocation.bindings.binding import Binding
from cli.errors import CommandError
from cli.kube.client import Client
from cluster.errors import NotFoundError
from cluster.gpu_binding import GpuBinding
from cluster.resource import GPU_BINDINGS


def read(client: Client) -> list[Binding]:
    """Return all bindings.

    Raises:
        CommandError: the cluster does not define the resource.
    """
    try:
        return [each.binding for each in client.list(GPU_BINDINGS, GpuBinding)]
    except NotFoundError:
        raise CommandError(
            f"resource {GPU_BINDINGS.plural}.{GPU_BINDINGS.group} is not defined in this cluster; switch it on by the "
            "component manifests/gpubindings, or with Helm --set bindings.mode=labelled (docs/gpubindings.md), or "
            "choose another --context"
        ) from None
