"""The command line of `kubectl gpu version`."""

import argparse

from cli.commands import Command

_DESCRIPTION = """\
Prints the versions of kubectl-gpu and of the scheduler that runs in the
cluster. They may differ by one minor version. Commands that explain or
simulate decisions print a warning if they differ by more.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--client", action="store_true", help="print only the version of kubectl-gpu; needs no cluster")


COMMAND = Command(
    module="cli.version",
    summary="print the versions of kubectl-gpu and of the installed scheduler",
    description=_DESCRIPTION,
    add=_add,
    outputs=("text", "json", "yaml"),
    asks_cluster=False,
    reads_configuration=True,
)
