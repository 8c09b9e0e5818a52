"""Runs a command and turns its errors into messages and exit codes."""

import argparse
import importlib
import logging
import sys
from pathlib import Path
from typing import Any, Final

from cli import streams
from cli.errors import CommandError
from cluster.errors import ClusterError

_FAILED: Final = 1
_INTERRUPTED: Final = 130
_UNREAD: Final = 141


def run(arguments: argparse.Namespace) -> int:
    """Run the command that `arguments` name, and return the exit code."""
    logging.basicConfig(level=logging.CRITICAL)  # logs of libraries do not belong in the output
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except CommandError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001 -- a bug: one line with its place is more useful than a traceback
        if isinstance(error, OSError) and streams.is_unread(error):
            streams.discard_output()
            return _UNREAD
        print(f"error: {_bug(error)}", file=sys.stderr)
        return _FAILED
    return code


def _run(arguments: argparse.Namespace) -> int:
    """Load only the modules that the command needs, such as numpy or the API client, and run it."""
    command: Any = importlib.import_module(arguments.module)
    if not arguments.asks_cluster:
        return int(command.run(arguments))
    from cli.kube.session import open_session  # noqa: PLC0415 -- loaded only for commands that need it

    return int(command.run(open_session(arguments), arguments))


def _bug(error: Exception) -> str:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    where = f"{Path(last.tb_frame.f_code.co_filename).name}:{last.tb_lineno}" if last is not None else "unknown"
    return f"unexpected {type(error).__name__} in {where}: {error}; this is a bug in kubectl-gpu, please report it"
