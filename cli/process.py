"""One run of a command, and what becomes of its errors."""

import argparse
import importlib
import logging
import os
import sys
from pathlib import Path
from typing import Any, Final

from cli.errors import CommandError
from cluster.errors import ClusterError

_FAILED: Final = 1
_INTERRUPTED: Final = 130
_UNREAD: Final = 141


def run(arguments: argparse.Namespace) -> int:
    """Run the command that `arguments` name; answer the exit code."""
    logging.basicConfig(level=logging.CRITICAL)  # what a library logs is not the answer to the question
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
        return _UNREAD
    except Exception as error:  # noqa: BLE001 -- a defect of ours: a line that says where is worth more than a page
        print(f"error: {_defect(error)}", file=sys.stderr)
        return _FAILED
    return code


def _run(arguments: argparse.Namespace) -> int:
    """Load what the command needs and no more: without arithmetic no numpy, without a cluster no client of one."""
    command: Any = importlib.import_module(f"cli.{arguments.command.replace('-', '_')}")
    if not arguments.asks_cluster:
        return int(command.run(arguments))
    from cli.session import open_session  # noqa: PLC0415 -- see above

    return int(command.run(open_session(arguments), arguments))


def _defect(error: Exception) -> str:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    where = f"{Path(last.tb_frame.f_code.co_filename).name}:{last.tb_lineno}" if last is not None else "nowhere"
    return f"unexpected {type(error).__name__} in {where}: {error}; this is a defect of kubectl-gpu, please report it"
