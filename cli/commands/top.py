"""The command line of `kubectl gpu top`."""

import argparse

from cli.commands import TABLE, Command
from cli.flags import add_resource_names, add_scheduler_url

_DESCRIPTION = """\
Shows how much of the cards is reserved, as the scheduler counts it. Each row
is a node. With --cards, or if nodes are named, each row is a card with the
pods that have shares of it.

With --namespaces each row is a resource of a namespace: the amount that its
pods have reserved, the limit, and the ResourceQuota that sets the limit.
'kubectl describe quota' shows 0 for these, because Kubernetes does not count
them.

With --usage each row is a container with its share of a card: what it really
uses, as the agents have measured it, against what it has reserved. What they
cannot measure is unknown. The pods of a namespace that you may list, or all.

With -n only the nodes and cards of which that namespace has shares are shown,
with only its pods; the sums include all namespaces. If you may not read the
whole cluster, because your role covers one namespace, the command asks the
scheduler about that namespace; then the sums include only that namespace.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "nodes", nargs="*", metavar="NODE", help="show the cards of these nodes; a leading word 'nodes' is ignored"
    )
    parser.add_argument("--cards", action="store_true", help="show a row for each card of every node")
    parser.add_argument("--namespaces", action="store_true", help="show the usage and the limits of namespaces")
    parser.add_argument("--usage", action="store_true", help="show what containers really use of their shares")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="include every namespace (the default)")
    parser.add_argument("-w", "--watch", action="store_true", help="print again after each change, until Ctrl-C")
    add_resource_names(parser)
    add_scheduler_url(parser)


COMMAND = Command(
    module="cli.top.top",
    summary="show the reserved shares of nodes, cards and namespaces",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "wide", "json", "yaml", "name"),
)
