"""The command line of `kubectl gpu queues`."""

import argparse

from cli.commands import TABLE, Command
from cli.flags import add_scheduler_url

_DESCRIPTION = """\
Shows the queues that share the cards: the GpuQueues, and each namespace with
pods that name none, which is a queue of its own (namespace/NAME). The command
counts as the scheduler does, by what the API server shows, and writes nothing.

SHARE is the largest share that a queue has of any resource (-o wide names it),
ENTITLED its weight divided by the weights of all queues with pods. The rows are
in the order in which a free card is offered: highest priority, then smallest
share divided by weight. NEXT is the first waiting pod of a queue.

With QUEUE only this queue is shown, with -n those that the pods of the
namespace may use. If you may not read the whole cluster, because your role
covers one namespace, the command asks the scheduler for these instead; what
other namespaces have is then <hidden>. docs/queues.md describes how queues are
written.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queue", nargs="?", metavar="QUEUE", help="show this queue (default: all)")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="include every namespace (the default)")
    parser.add_argument(
        "--config", default="", metavar="FILE", help="Tranche's configuration file (default: the installed one)"
    )
    add_scheduler_url(parser)


COMMAND = Command(
    module="cli.queues.queues",
    summary="show which share of the cards each queue has, and what waits",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "wide", "json", "yaml", "name"),
)
