"""The real node's own process and mount namespaces: when their first process ends, nothing of the node is left.

That is the kernel's promise (pid_namespaces(7), mount_namespaces(7)), and it holds for containers, shims and mounts
alike, however the lab came to its end. The network stays the machine's: the API server is on its loopback interface.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lab import node_init, processes, wait
from lab.errors import LabError
from lab.processes import Daemon

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.layout import Layout

# Folders that are not configurable in containerd, its shims, the CNI library and the kubelet.
FOLDERS = ("/run/containerd", "/run/netns", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers")
PROGRAMS = ("unshare", "nsenter", "setpriv", "mount")
READY_S = 20.0


def create(layout: Layout) -> None:
    """Make the namespaces. Harmless where they are."""
    daemon = Daemon(layout, "node")
    if daemon.is_running:
        return
    scratch, ready = layout.node / "settings", layout.node / "ready"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    ready.unlink(missing_ok=True)
    for folder in FOLDERS:
        Path(folder).mkdir(parents=True, exist_ok=True)
    daemon.start(
        [
            *("unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"),
            *("--", sys.executable, "-I", str(Path(node_init.__file__)), scratch, ready, *FOLDERS),
        ]
    )
    wait.until(ready.exists, what="namespaces of the real node", timeout_s=READY_S, daemons=[daemon])


def inside(layout: Layout, argv: Sequence[str | Path]) -> list[str | Path]:
    """The command that runs `argv` in the namespaces.

    nsenter stays outside as the parent of what it runs; the signal that its death sends keeps the two together.
    """
    target = str(_first_process(layout))
    return [
        *("nsenter", "--target", target, "--mount", "--pid", "--wd=/", "--"),
        *("setpriv", "--pdeathsig", "TERM", "--", *argv),
    ]


def remove(layout: Layout) -> None:
    """End everything in the namespaces, and remove the mount points that were made for them.

    Removing a folder takes it away from all namespaces in which it is a mount point, so another lab keeps it.
    """
    Daemon(layout, "node").stop()
    if any(root != layout.root for root in processes.marked().values()):
        return
    for folder in FOLDERS:
        with contextlib.suppress(OSError):  # somebody else uses it
            Path(folder).rmdir()


def _first_process(layout: Layout) -> int:
    """The one child of unshare."""
    parent = Daemon(layout, "node").pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split() if parent else []
    if len(children) != 1:
        raise LabError("namespaces of the real node", why="they are not there", remedy="run `python -m lab up`")
    return int(children[0])
