"""The command line of `kubectl gpu rotate-certs`."""

import argparse

from cli.commands import Command


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ca", action="store_true", help="replace the certificate authority too")
    parser.add_argument(
        "--dry-run", action="store_true", help="only say what would be done, and whether it would end well"
    )
    parser.add_argument(
        "--probe",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="a replica that shall be seen to show a new certificate; may be repeated",
    )
    parser.add_argument(
        "--drop-old",
        action="store_true",
        help="stop believing old authorities once every --probe shows a new certificate; name every replica",
    )
    parser.add_argument(
        "--settle",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="how long API servers have to see a new caBundle (default: 10)",
    )
    parser.add_argument(
        "--timeout", type=float, default=120.0, metavar="SECONDS", help="how long all of it may take (default: 120)"
    )


COMMAND = Command(
    summary="replace the webhook's certificates, or their authority, without a failed admission",
    description="Replaces every certificate of the admission webhook, with --ca the authority that signs them too, "
    "without a failed admission, and says each step. Whatever becomes of this command, the webhook completes what was "
    "begun.",
    add=_add,
)
