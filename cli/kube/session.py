"""The session of a command that talks to a cluster: the client and the default namespace."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import msgspec

from cli.errors import CommandError
from cli.kube.access import Access, access
from cli.kube.client import Client
from cli.kube.kubeconfig import Overrides
from cluster.errors import NotFoundError
from cluster.resource import Resource

if TYPE_CHECKING:
    from cluster.api import Api
    from cluster.connection import Connection

T = TypeVar("T")


class Session(msgspec.Struct, frozen=True):
    """What a command works with.

    Attributes:
        client: sends requests to the API server.
        namespace: the namespace of objects for which the command line names none.
        access: how to reach the API server, for `live`.
    """

    client: Client
    namespace: str
    access: Access

    def get(self, resource: Resource, kind: type[T], name: str) -> T:
        """Read an object in the session's namespace.

        Raises:
            CommandError: the object does not exist.
        """
        try:
            return self.client.get(resource, kind, name=name, namespace=self.namespace)
        except NotFoundError:
            raise CommandError(
                f"{resource.kind.lower()} {self.namespace}/{name} does not exist;"
                f" see 'kubectl get {resource.plural} -n {self.namespace}'"
            ) from None


def overrides(arguments: argparse.Namespace) -> Overrides:
    """Return what the flags of the command line choose instead of the kubeconfig's current context."""
    return Overrides(
        kubeconfig=arguments.kubeconfig,
        context=arguments.context,
        cluster=arguments.cluster,
        user=arguments.kube_user,
        impersonate=arguments.impersonate,
        token=arguments.token,
    )


def open_session(arguments: argparse.Namespace, *, timeout: float = 30.0) -> Session:
    """Return a session for the cluster that flags and kubeconfig choose; no request is sent yet.

    Raises:
        CommandError: no usable kubeconfig exists.
    """
    chosen = access(overrides(arguments))
    return Session(Client(chosen, timeout=timeout), arguments.namespace or chosen.namespace, chosen)


@asynccontextmanager
async def connected(access: Access) -> "AsyncIterator[Connection]":
    """Open an asynchronous session with the API server."""
    import aiohttp  # noqa: PLC0415 -- slow to load

    from cluster.connection import Connection  # noqa: PLC0415 -- slow to load

    async def headers() -> dict[str, str]:
        return dict(access.headers)

    connector = aiohttp.TCPConnector(ssl=access.tls if access.tls is not None else True)
    async with aiohttp.ClientSession(connector=connector, proxy=access.proxy or None) as session:
        yield Connection(session=session, server=access.server, headers=headers, namespace=access.namespace)


@asynccontextmanager
async def live(access: Access) -> "AsyncIterator[Api]":
    """Open the asynchronous client that the processes use, for a command that watches or runs for long."""
    from cluster.api import Api  # noqa: PLC0415 -- slow to load

    async with connected(access) as connection:
        yield Api(connection)
