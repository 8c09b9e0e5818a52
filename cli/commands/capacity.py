"""The command line of `kubectl gpu capacity`."""

import argparse

from cli.commands import TABLE, Command
from cli.flags import add_filename, add_scheduler_url, add_with_node

_DESCRIPTION = """\
Counts how many more pods fit now: those of a manifest with -f, the first pod of
each workload; otherwise whole cards and the sizes of slices that most pods
have. Copies of the pod are placed one after the other, by the scheduler's own
decision over what the API server shows, until one fits nowhere. Pods that wait
already are not counted before them. The command writes nothing.

Below the counts, per model and per node, is the largest slice of one card that
the first shape could have, and what is stranded: free memory on cards without
compute, free compute on cards without memory, cards without slots, and cards
for which the CPU or memory of their node does not suffice, with the queue whose
pods use most of what is missing. If a quota ends a count before the cards do,
a line says so.

With --with-node NODE=4 the counts are those of a cluster that has four more
nodes like NODE, without its pods. If you may not read the whole cluster,
because your role covers one namespace, the command asks the scheduler instead:
without nodes, what is stranded, and --with-node.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    add_filename(parser, required=False)
    add_with_node(parser)
    parser.add_argument(
        "--config", default="", metavar="FILE", help="Tranche's configuration file (default: the installed one)"
    )
    add_scheduler_url(parser)


COMMAND = Command(
    module="cli.capacity.capacity",
    summary="count how many more pods fit, and show what is stranded",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "wide", "json", "yaml"),
)
