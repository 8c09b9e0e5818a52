"""The command line of `kubectl gpu inject`."""

import argparse

from cli.commands import Command
from cli.flags import add_filename

_DESCRIPTION = """\
Prints manifests with every pod and pod template as the admission webhook would
change it. Without --config the installed configuration is read from the
cluster; without a cluster the defaults are assumed, and a note says so. Every
namespace counts as opted in, except those of webhook.excluded_namespaces, whose
pods are not changed. A pod whose own label opts out is not changed either.

The GpuQuotas of the pod's namespace are read from the cluster: their defaults
are filled in, and a pod that exceeds one alone counts as refused. ResourceQuotas
are not read.

If GPUBindings count, those of the pod's application are read from the cluster,
and the memory that they set takes the place of the pod's own.

A GpuClaim that a pod names is looked for in the files, then in the cluster, in
the namespace of the pod. If it is in neither, the pod counts as refused.

Pod templates are those of Deployment, StatefulSet, DaemonSet, ReplicaSet,
ReplicationController, Job, CronJob and PodTemplate, also inside lists.
Documents without changes are printed as they are, with their comments.
Documents with changes keep the order of keys and the style of scalars, but
lose their comments.

If the webhook would refuse any pod, the command prints no manifest, so that a
pipe into 'kubectl apply -f -' never applies a part of the file. It prints each
refusal to standard error and exits with 1. Warnings go to standard error too;
they do not change the exit code.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    add_filename(parser)
    parser.add_argument(
        "--config", default="", metavar="FILE", help="Tranche's configuration file (default: the installed one)"
    )
    parser.add_argument(
        "--as",
        dest="user",
        default="",
        metavar="USER",
        help="the user who will create the objects; only some users may create pods with an allocation",
    )


COMMAND = Command(
    module="cli.manifests.inject",
    summary="print manifests as the admission webhook would change them",
    description=_DESCRIPTION,
    add=_add,
    outputs=("yaml", "json"),
    asks_cluster=False,
    reads_configuration=True,
)
