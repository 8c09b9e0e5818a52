"""One run of a command, and what becomes of its errors."""

import argparse
import importlib
import inspect
import logging
import os
import sys
from typing import Final

from cli.errors import CommandError
from cluster.errors import ClusterError

_FAILED: Final = 1
_INTERRUPTED: Final = 130


def run(arguments: argparse.Namespace) -> int:
    """Run the command that `arguments` name; answer the exit code."""
    logging.basicConfig(level=logging.ERROR)  # a library's warnings are not the answer to the question
    try:
        code = _run(arguments)
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


def _run(arguments: argparse.Namespace) -> int:
    """Load what the command needs and no more: without arithmetic no numpy, without a cluster no client of one."""
    command = importlib.import_module(f"cli.{arguments.command.replace('-', '_')}").run
    if not inspect.iscoroutinefunction(command):
        code: int = command(arguments)
        return code
    from cli import session  # noqa: PLC0415 -- see above

    return session.run(command, arguments)
