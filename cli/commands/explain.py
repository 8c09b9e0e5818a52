"""The command line of `kubectl gpu explain`."""

import argparse

from cli.commands import TABLE, Command
from cli.flags import add_explanation

_DESCRIPTION = """\
Says why a pod waits, where it would go, or where it is: by the scheduler's own functions, over what the API server
shows. It works where no scheduler runs, and writes nothing.

Nodes with the same reason are told together; --node tells the cards of one. A reason is curable if pods that finish
or are evicted could change it; what is not needs another pod, or another node.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", help="the pod's name")
    add_explanation(parser)


COMMAND = Command(
    summary="why a pod waits, where it would go, or where it is",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "wide", "json", "yaml"),
)
