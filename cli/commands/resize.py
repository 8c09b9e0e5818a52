"""The command line of `kubectl gpu resize`."""

import argparse

from cli.commands import TABLE, Command
from cli.flags import add_scheduler_url

_DESCRIPTION = """\
Gives a running pod more or less memory and compute of each of its cards. The
pod keeps its node, its cards and its volumes; a container has the new size from
its next start, and until then the larger of both sizes is charged.

The command writes the annotation gpu.scheduling/resize with your own rights,
patch pods in the namespace, and waits until the scheduler has carried it out.
What does not fit now stays a wish, at which the scheduler looks every minute;
--dry-run asks the scheduler whether a size fits and what is left, and writes
nothing. It requires the right to get pods, and a bearer token.

docs/resize.md describes what is refused, and how it is switched on.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", help="the name of a running pod")
    parser.add_argument(
        *("-c", "--container"), default="", metavar="CONTAINER", help="the container (default: the only one with cards)"
    )
    parser.add_argument(
        "--memory", type=int, metavar="N", help="memory of each card, in units of nvidia.com/gpumem: MiB"
    )
    parser.add_argument("--cores", type=int, metavar="N", help="percent of each card's compute, 0 to 100")
    parser.add_argument(
        "--memory-limit", type=int, metavar="N", help="the most memory of each card that it may use, if above --memory"
    )
    parser.add_argument(
        "--cores-limit", type=int, metavar="N", help="the most compute that it may use, in percent, if above --cores"
    )
    parser.add_argument("--dry-run", action="store_true", help="ask whether the size fits; change nothing")
    parser.add_argument(
        "--timeout",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="how long to wait for the scheduler (default: 10)",
    )
    add_scheduler_url(parser)


COMMAND = Command(
    module="cli.resize",
    summary="give a running pod another size of its cards",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "json", "yaml", "name"),
)
