"""The command line of `kubectl gpu uncordon`."""

import argparse

from cli.commands import TABLE, Command

_DESCRIPTION = """\
Takes cards from the annotation hami.io/device-cordon of their node, whose other entries are kept: new pods may have
them again.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "uuids", nargs="+", metavar="UUID", help="a card's UUID, as 'kubectl gpu top --cards -o wide' lists it"
    )
    parser.add_argument(
        "--dry-run",
        choices=("none", "client", "server"),
        default="none",
        help="client: write nothing; server: let the API server check it, and write nothing (default: none)",
    )


COMMAND = Command(
    summary="let new pods have cards again",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "json", "yaml", "name"),
)
