"""The version of the scheduler that runs in the cluster, compared with that of this command.

As for kubectl, one minor version of difference is supported.
"""

import re
import sys
from http import HTTPStatus
from typing import Final

import msgspec

from cli.errors import CommandError
from cli.kube.client import Client
from cli.kube.failure import failure_of
from cluster import version
from cluster.errors import ClusterError
from cluster.version import Version
from scheduler.api.namespaced.paths import PROXY, VERSION

_MOST_MINORS: Final = 1
_RELEASE: Final = re.compile(r"(\d+)\.(\d+)\b")


def read(client: Client, *, prefix: str = PROXY) -> str:
    """Return the scheduler's version; `prefix` precedes the paths of its API.

    Raises:
        CommandError: it did not return its version.
        UnreachableError: no response came.
    """
    status, payload = client.send("GET", prefix + VERSION)
    if status != HTTPStatus.OK:
        raise CommandError(
            f"the scheduler did not return its version ({status}): {failure_of(payload)}; check that it runs: "
            "kubectl -n tranche-system get pods,services"
        )
    try:
        return msgspec.json.decode(payload, type=Version).version
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"the scheduler's version cannot be read: {error}") from None


def warn_of_skew(client: Client, *, prefix: str = PROXY) -> None:
    """Print a warning if the versions differ too much; print nothing if the scheduler does not return its version."""
    try:
        scheduler, mine = read(client, prefix=prefix), version.own().version
    except (CommandError, ClusterError):
        return
    if is_skewed(mine, scheduler):
        print(
            f"warning: kubectl-gpu is {mine}, the scheduler {scheduler}: they support one minor version of difference;"
            " use the kubectl-gpu of the installed version",
            file=sys.stderr,
        )


def is_skewed(mine: str, scheduler: str) -> bool:
    """Return whether two versions differ by more than is supported; versions that cannot be read do not."""
    releases = _RELEASE.match(mine), _RELEASE.match(scheduler)
    if releases[0] is None or releases[1] is None:
        return False
    (major, minor), (other_major, other_minor) = (tuple(map(int, each.groups())) for each in releases if each)
    return major != other_major or abs(minor - other_minor) > _MOST_MINORS
