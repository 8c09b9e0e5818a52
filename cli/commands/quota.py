"""The command line of `kubectl gpu quota`."""

import argparse

from cli.commands import TABLE, Command

_DESCRIPTION = """\
Shows what the pods of a namespace use of each limit that its quotas set, and
what is left: of GpuQuotas, and of ResourceQuotas with limits.nvidia.com/ keys,
because all of them hold. The command counts as the scheduler does, by what the
API server shows, and writes nothing. It needs role view in the namespace.

ALERT says whether less is left than the GpuQuota's alertThresholdPercent
leaves. -o wide adds the threshold, and what one pod may have (SINGLE) or gets
where it requests nothing (DEFAULT).

With QUOTA only the quota of that name is shown. docs/quotas.md describes how
quotas are written.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("quota", nargs="?", metavar="QUOTA", help="show this quota (default: all of the namespace)")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="show the quotas of every namespace")
    parser.add_argument(
        "--config", default="", metavar="FILE", help="Tranche's configuration file (default: the installed one)"
    )


COMMAND = Command(
    module="cli.quota",
    summary="show what is used of the quotas of a namespace, and what is left",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "wide", "json", "yaml", "name"),
)
