"""The command line of `kubectl gpu consolidate`."""

import argparse

from cli.commands import TABLE, Command
from cli.flags import add_scheduler_url

_DESCRIPTION = """\
Plans which pods to move to other nodes so that a pending pod fits that fits
nowhere now. Cards become stranded as pods end: each node has a little left,
and none has enough. Only pods move that their controller creates again, that
no PodDisruptionBudget or annotation protects, and whose priority the settings
allow (scheduler.consolidation); for each of them there is room elsewhere.

Without POD there is a plan for each pending pod, or for those of a namespace
with -n. Each plan is for one pod alone. Nothing is changed without --apply.

With --apply and POD, the scheduler moves the pods. It reserves what the pending
pod and each moved pod will get, then evicts one pod after the other, at the
rate of its settings, and stops if one has no node again in time. The moves are
never more than the plan that was printed has. The scheduler plans again at this
moment, and requires the right to create pods/eviction in all namespaces, and a
bearer token. Ctrl-C ends the command, and the moves go on.

With --free the plan is for a pod that requests this number of whole cards. The
exit code is 1 if there is no plan, or if --apply does not place the pod.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", nargs="?", metavar="POD", help="the name of a pending pod (default: all)")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="include every namespace (the default)")
    parser.add_argument("--free", type=int, default=0, metavar="N", help="plan for N whole cards of one node")
    parser.add_argument("--apply", action="store_true", help="move the pods, and wait until POD has a node")
    parser.add_argument(
        "--config", default="", metavar="FILE", help="Tranche's configuration file (default: the installed one)"
    )
    add_scheduler_url(parser)


COMMAND = Command(
    module="cli.consolidate.consolidate",
    summary="plan which pods to move so that a pending pod fits, and move them",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "json", "yaml"),
)
