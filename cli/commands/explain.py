"""The command line of `kubectl gpu explain`."""

import argparse

from cli.commands import TABLE, Command
from cli.flags import add_explanation

_DESCRIPTION = """\
Explains where a pod is or would be placed, or why it waits. The command runs
the scheduler's own functions over what the API server shows, and writes
nothing. Parts of the installation that do not work are listed first, for
example a scheduler that does not lead. If you may not read the whole cluster,
because your role covers one namespace, the command asks the scheduler instead;
then the output shows which cards the pod could use, but not how much of them
is in use.

Nodes with the same reason share a row; --node shows the cards of one node. A
reason is resolvable if the pod may fit when other pods finish or are evicted.
Otherwise the pod, or the node, has to change.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", help="the name of a pod, or a workload such as deploy/web")
    add_explanation(parser)


COMMAND = Command(
    module="cli.explain.explain",
    summary="explain where a pod is or would be placed, or why it waits",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "wide", "json", "yaml"),
)
