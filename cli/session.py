"""One run of a command: the connection, the namespace, and what becomes of errors."""

import argparse
import asyncio
import importlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from cli.errors import CommandError
from cluster.api import Api
from cluster.connection import connect
from cluster.errors import ClusterError

_FAILED: Final = 1
_INTERRUPTED: Final = 130


class Session(msgspec.Struct, frozen=True):
    """What a command works with.

    Attributes:
        api: the API server.
        namespace: where an object without a namespace is looked for.
    """

    api: Api
    namespace: str


Command = Callable[[Session, argparse.Namespace], Awaitable[int]]


def run(arguments: argparse.Namespace) -> int:
    """Run the command that `arguments` name; answer the exit code."""
    logging.basicConfig(level=logging.ERROR)  # a library's warnings are not the answer to the question
    # Each command brings its own libraries: one that needs no arithmetic does not wait for numpy.
    command: Command = importlib.import_module(f"cli.{arguments.command}").run
    try:
        code = asyncio.run(_run(command, arguments))
        sys.stdout.flush()
    except (CommandError, ClusterError) as error:
        print(f"error: {error}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # Who read the output has gone, as `head` does; what is buffered must not fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAILED
    return code


async def _run(command: Command, arguments: argparse.Namespace) -> int:
    async with connect(kubeconfig=arguments.kubeconfig, context=arguments.context) as connection:
        session = Session(Api(connection), arguments.namespace or connection.namespace)
        return await command(session, arguments)
