"""The command line of `kubectl gpu preflight`."""

import argparse

from cli.commands import TABLE, Command

_DESCRIPTION = """\
Reports what a switch to Tranche would change in this cluster, and writes
nothing: which nodes have a device plugin that conflicts, how running GPU pods
would be counted, which new pods would be changed, refused or held, and which
other components decide about GPU pods. Findings have three levels: BLOCKS must
be resolved before the switch, CHANGES will behave differently after it, NOTES
are for information. With -n only the pods, templates and quotas of that
namespace are checked. docs/hami.md describes the next steps.

exit codes: 0 nothing blocks the switch, 1 something blocks it or the check
failed, 2 wrong command line
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="check every namespace (the default)")
    parser.add_argument(
        "--mode",
        choices=("loop", "extender"),
        default="",
        help="the mode in which Tranche will run (default: the installed mode, or loop)",
    )
    parser.add_argument(
        "--config", default="", metavar="FILE", help="Tranche's configuration file (default: the installed one)"
    )


COMMAND = Command(
    module="cli.preflight.preflight",
    summary="report what a switch to Tranche would change, and what blocks it",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "json", "yaml"),
)
