"""The command line of `kubectl gpu preflight`."""

import argparse

from cli.commands import TABLE, Command

_DESCRIPTION = """\
Reads the cluster, writes nothing, and says what a switch to Tranche would change: which nodes have a device plugin in
the way, how running GPU pods would be counted, which new ones would be changed, refused or held, what else decides
about them. What is found is sorted: BLOCKS is to be done before the switch, CHANGES will be different after it, NOTES
are good to know. With -n only pods, templates and quotas of that namespace are looked at. docs/migration.md goes on
from there.

exit codes: 0 nothing in the way, 1 something to do first, or the cluster could not be asked, 2 wrong command line
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="pods of every namespace (the default)")
    parser.add_argument("--mode", choices=("loop", "extender"), default="loop", help="how it shall run (default: loop)")
    parser.add_argument(
        "--config", default="", metavar="FILE", help="Tranche's configuration file (default: its defaults)"
    )


COMMAND = Command(
    summary="what a switch to Tranche would change, and what to do first",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "json", "yaml"),
)
