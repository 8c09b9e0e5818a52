"""Objects of the kinds that Tranche defines, in a cluster that may not have all of them."""

from typing import TypeVar

from cli.errors import CommandError, MissingRightError
from cli.kube.client import Client
from cli.tables import note
from cluster.errors import NotFoundError
from cluster.resource import Resource

T = TypeVar("T")


def read(client: Client, resource: Resource, kind: type[T], *, namespace: str = "") -> list[T]:
    """Return the objects of a kind, in a namespace or in all.

    Raises:
        CommandError: the cluster does not define the resource, or it may not be read.
    """
    try:
        return client.list(resource, kind, namespace=namespace)
    except NotFoundError:
        raise CommandError(
            f"{_not_defined(resource)}: apply the manifests of this version (docs/install.md), or choose another"
            " --context"
        ) from None


def read_if_possible(client: Client, resource: Resource, kind: type[T], *, namespace: str = "") -> list[T]:
    """Return the objects of a kind, in a namespace or in all.

    If they cannot be read, note that what follows does without them.
    """
    try:
        return client.list(resource, kind, namespace=namespace)
    except NotFoundError:
        cause = _not_defined(resource)
    except MissingRightError as error:
        cause = error.cause
    note(f"{cause}: the result is that of a cluster without {resource.kind}s")
    return []


def _not_defined(resource: Resource) -> str:
    return f"resource {resource.plural}.{resource.group} is not defined in this cluster"
