"""A command that asks a cluster: how it asks, and the namespace that is meant where nobody says one."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from cli.access import Access, access
from cli.client import Client
from cli.kubeconfig import Wanted

if TYPE_CHECKING:
    from cluster.api import Api


class Session(msgspec.Struct, frozen=True):
    """What a command works with.

    Attributes:
        client: asks the API server.
        namespace: where an object without a namespace is looked for.
        access: the way to it, for `live`.
    """

    client: Client
    namespace: str
    access: Access


def wanted(arguments: argparse.Namespace) -> Wanted:
    """Answer what the flags of the command line say about the cluster."""
    return Wanted(
        kubeconfig=arguments.kubeconfig,
        context=arguments.context,
        cluster=arguments.cluster,
        user=arguments.kube_user,
        impersonate=arguments.impersonate,
    )


def open_session(arguments: argparse.Namespace, *, timeout: float = 30.0) -> Session:
    """Answer a session as the flags and the kubeconfig say; nothing is asked yet.

    Raises:
        CommandError: there is no usable kubeconfig.
    """
    way = access(wanted(arguments))
    return Session(Client(way, timeout=timeout), arguments.namespace or way.namespace, way)


@asynccontextmanager
async def live(way: Access) -> "AsyncIterator[Api]":
    """Open the client of processes that stay, for a command that watches or takes its time."""
    import aiohttp  # noqa: PLC0415 -- slow to load

    from cluster.api import Api  # noqa: PLC0415 -- the same
    from cluster.connection import Connection  # noqa: PLC0415 -- the same

    async def headers() -> dict[str, str]:
        return dict(way.headers)

    connector = aiohttp.TCPConnector(ssl=way.tls if way.tls is not None else True)
    async with aiohttp.ClientSession(connector=connector, proxy=way.proxy or None) as session:
        yield Api(Connection(session=session, server=way.server, headers=headers, namespace=way.namespace))
