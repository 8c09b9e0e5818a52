"""The command line of `kubectl gpu cordon`."""

import argparse

from cli.commands import TABLE, Command

_DESCRIPTION = """\
Keeps new pods from cards; pods on them stay, and are named. The card's node has it in its annotation
hami.io/device-cordon, whose other entries are kept. The UUID of a card in MIG mode stands for all of its instances.
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
    summary="keep new pods from cards",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "json", "yaml", "name"),
)
