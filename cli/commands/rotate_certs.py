"""The command line of `kubectl gpu rotate-certs`."""

import argparse

from cli.commands import Command

_DESCRIPTION = """\
Replaces every certificate of the admission webhook, and with --ca also the
authority that signs them, without a failed admission. The command prints each
step. If it is interrupted, the webhook completes the rotation.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ca", action="store_true", help="also replace the certificate authority")
    parser.add_argument(
        "--dry-run", action="store_true", help="only report the steps, and whether the rotation would succeed"
    )
    parser.add_argument(
        "--probe",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="wait until this replica presents a new certificate; may be repeated",
    )
    parser.add_argument(
        "--drop-old",
        action="store_true",
        help="stop trusting old authorities once every --probe presents a new certificate; name every replica",
    )
    parser.add_argument(
        "--settle",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="how long to wait until all API servers have seen a new caBundle (default: 10)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="how long the whole rotation may take (default: 120)",
    )


COMMAND = Command(
    module="cli.rotate_certs",
    summary="replace the webhook's certificates, or their authority, without a failed admission",
    description=_DESCRIPTION,
    add=_add,
)
