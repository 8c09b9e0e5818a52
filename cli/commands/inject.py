"""The command line of `kubectl gpu inject`."""

import argparse

from cli.commands import Command
from cli.flags import add_filename

_DESCRIPTION = """\
Prints manifests with every pod, and every pod template, as the admission webhook would leave it. No cluster is asked:
every namespace counts as opted in, a pod that opts out by its own label is left alone.

Templates are those of Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController, Job, CronJob and
PodTemplate; lists are looked into. What has nothing to change is printed as it was written, comments included, in
its place; in a document that changes, the order of keys and the way that scalars are written stay, comments do not.

If one pod is refused, nothing at all is printed, so that a pipe into 'kubectl apply -f -' never applies half of it;
each refusal is told on standard error in the webhook's words, and the exit code is 1. Warnings go to standard error
as well and change nothing else.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    add_filename(parser)
    parser.add_argument(
        "--config", default="", metavar="FILE", help="the webhook's configuration file (default: its defaults)"
    )
    parser.add_argument(
        "--as",
        dest="user",
        default="",
        metavar="USER",
        help="who will create it, which matters to pods that bring an allocation",
    )


COMMAND = Command(
    summary="manifests as the admission webhook would leave them",
    description=_DESCRIPTION,
    add=_add,
    outputs=("yaml", "json"),
    asks_cluster=False,
)
