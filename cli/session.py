"""A command that asks a cluster: the connection, and the namespace that is meant where nobody says one."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from cluster.api import Api
from cluster.connection import connect


class Session(msgspec.Struct, frozen=True):
    """What a command works with.

    Attributes:
        api: the API server.
        namespace: where an object without a namespace is looked for.
    """

    api: Api
    namespace: str


Command = Callable[[Session, argparse.Namespace], Awaitable[int]]


def run(command: Command, arguments: argparse.Namespace) -> int:
    """Connect and let `command` answer; raises what it raises."""
    return asyncio.run(_run(command, arguments))


async def _run(command: Command, arguments: argparse.Namespace) -> int:
    async with connect(kubeconfig=arguments.kubeconfig, context=arguments.context) as connection:
        session = Session(Api(connection), arguments.namespace or connection.namespace)
        return await command(session, arguments)
