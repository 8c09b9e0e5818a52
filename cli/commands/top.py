"""The command line of `kubectl gpu top`."""

import argparse

from cli.commands import TABLE, Command

_DESCRIPTION = """\
Shows what is reserved of the cards, counted as the scheduler counts: reservations, not measurements. A line is a node;
with --cards, or where nodes are named, a line is a card with the pods that have shares of it.

With -n only nodes and cards are shown on which that namespace has shares, and only its pods; the sums stay everybody's.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "nodes", nargs="*", metavar="NODE", help="the cards of these nodes; 'nodes' before them is ignored"
    )
    parser.add_argument("--cards", action="store_true", help="a line for each card of every node")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="pods of every namespace (the default)")
    parser.add_argument(
        "-w", "--watch", action="store_true", help="print again whenever something changes, until Ctrl-C"
    )
    parser.add_argument(
        "--config",
        default="",
        metavar="FILE",
        help="Tranche's configuration file, where it has other resource names (default: its defaults)",
    )


COMMAND = Command(
    summary="what is reserved of nodes and cards, and by whom",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "wide", "json", "yaml", "name"),
)
