"""The command line of `kubectl gpu ui`."""

import argparse

from cli.commands import Command

_DESCRIPTION = """\
Opens the page of the scheduler in the browser: the fleet, what waits and why,
shares, and decisions as they are made. The command forwards a local port to
the replica that leads, follows it when another one takes over, and runs until
Ctrl-C. The page shows what its user could read with the right to forward
ports of pods in tranche-system: everything. The scheduler serves it if its
setting ui.enabled is true.
"""


def _port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdigit() else -1
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: it must be an integer from 0 to 65535")
    return port


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=_port, default=0, metavar="PORT", help="listen on this local port (default: a free one)"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the URL")


COMMAND = Command(
    module="cli.ui",
    summary="open the scheduler's page in the browser: the fleet at a glance, and why a pod waits",
    description=_DESCRIPTION,
    add=_add,
)
