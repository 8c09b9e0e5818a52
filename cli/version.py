"""`kubectl gpu version`: the versions of this command and of the installed scheduler."""

import argparse
import sys

import msgspec

from cli.errors import CommandError
from cli.kube import scheduler_version
from cli.kube.session import open_session
from cli.tables import structured
from cluster import version
from cluster.errors import ClusterError


class Versions(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What `kubectl gpu version -o json` prints; `scheduler_version` is missing if the scheduler was not asked."""

    client_version: str
    scheduler_version: str = ""


def run(arguments: argparse.Namespace) -> int:
    """Print both versions; without the scheduler's, print this one's, and return 1."""
    mine, scheduler, failure = version.own().version, "", ""
    if not arguments.client:
        try:
            scheduler = scheduler_version.read(open_session(arguments).client)
        except (CommandError, ClusterError) as error:
            failure = str(error)
    printed = structured(Versions(mine, scheduler), output=arguments.output)
    if printed is None:
        printed = f"Client Version: {mine}\n" + (f"Scheduler Version: {scheduler}\n" if scheduler else "")
    print(printed, end="", flush=True)
    if failure:
        raise CommandError(failure)
    if scheduler_version.is_skewed(mine, scheduler):
        print("warning: the versions differ by more than one minor version, which is not supported", file=sys.stderr)
    return 0
