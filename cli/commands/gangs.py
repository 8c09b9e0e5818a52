"""The command line of `kubectl gpu gangs`."""

import argparse

from cli.commands import TABLE, Command
from cli.flags import add_scheduler_url

_DESCRIPTION = """\
Shows the gangs of a namespace: pods that get nodes together or not at all. The
command reads what the API server shows, and writes nothing. It needs role view
in the namespace.

PLACED are the pods with a node and those that have succeeded, SIZE is how many
have to be placed together, AGE that of the oldest pod that waits. MESSAGE says
why the gang was rejected when it was last decided. A gang is Incomplete if
fewer pods exist than it needs, and Partial if some of its pods have nodes, but
fewer than necessary.

With GANG the pods of this gang are shown: the node and the cards of each, or
why it waits. docs/gangs.md describes how gangs are declared.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("gang", nargs="?", metavar="GANG", help="show the pods of this gang (default: all gangs)")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="show the gangs of every namespace")
    parser.add_argument(
        "--config", default="", metavar="FILE", help="Tranche's configuration file (default: the installed one)"
    )
    add_scheduler_url(parser)


COMMAND = Command(
    module="cli.gangs.gangs",
    summary="show which pods get nodes together, and what they wait for",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "wide", "json", "yaml"),
)
