"""The command line of `kubectl gpu simulate`."""

import argparse

from cli.commands import TABLE, Command
from cli.flags import add_explanation, add_filename, add_with_node

_DESCRIPTION = """\
Shows what would happen to the pods of a manifest if they were created now:
first admission, then the scheduler's own decision over what the API server
shows. It writes nothing. Parts of the installation that do not work are listed
first. If you may not read the whole cluster, because your role covers one
namespace, the command asks the scheduler instead.

Each workload is expanded to pods as its controller would do it, with the
claims of a StatefulSet, the nodes of a DaemonSet and the indexes of a Job.
Only the first pod of each workload is evaluated. With --all every pod of all
files is evaluated in order, and each pod that fits reserves its cards. The
exit code is 1 if any evaluated pod would not be placed, or if no GPU pod can
start because a part of the installation does not work.

With --with-node NODE=4 the cluster has four more nodes like NODE, empty: would
a node like it help?

The simulation does not include the changes of other admission plugins
(LimitRanges, runtime classes), except for the priority of a pod's
PriorityClass.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    add_filename(parser)
    add_explanation(parser)
    add_with_node(parser)
    parser.add_argument("--all", action="store_true", help="evaluate every replica, and count how many fit")


COMMAND = Command(
    module="cli.explain.simulate",
    summary="show where the pods of a manifest would be placed, or why they would wait",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "wide", "json", "yaml"),
)
