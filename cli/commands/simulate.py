"""The command line of `kubectl gpu simulate`."""

import argparse

from cli.commands import TABLE, Command

_DESCRIPTION = """\
Says what would become of the pods of a manifest if they were created now: admission first, then the scheduler's own
decision over what the API server shows. It works where no scheduler runs, and writes nothing. Every pod is asked about
by itself, a pod template as one pod of it. The exit code is 1 if any of them would not be placed.

Not known are what other admission plugins would add (LimitRanges, priority and runtime classes).
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        *("-f", "--filename"),
        action="append",
        required=True,
        metavar="FILE",
        help="YAML or JSON with any number of documents, - for standard input; may be repeated",
    )
    parser.add_argument("--node", default="", metavar="NODE", help="the cards of this node, and what each says")
    parser.add_argument(
        "--config",
        default="",
        metavar="FILE",
        help="Tranche's configuration file, where it is not all defaults",
    )


COMMAND = Command(
    summary="where the pods of a manifest would go, or why they would wait",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "wide", "json", "yaml"),
)
