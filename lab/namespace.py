"""The PID and mount namespaces of the real node: when their first process exits, nothing of the node is left.

The kernel guarantees this (pid_namespaces(7), mount_namespaces(7)) for containers, shims and mounts, even after a crash
of the lab. The node uses the network of the machine, because the API server listens on the loopback interface.
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

# Folders whose paths are not configurable in containerd, its shims, the CNI library and the kubelet.
FOLDERS = ("/run/containerd", "/run/netns", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers")
PROGRAMS = ("unshare", "nsenter", "setpriv", "mount")


def create(layout: Layout) -> None:
    """Create the namespaces. Idempotent."""
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
    wait.until(ready.exists, what="namespaces of the real node", daemons=[daemon])


def inside(layout: Layout, argv: Sequence[str | Path]) -> list[str | Path]:
    """Return the command that runs `argv` in the namespaces.

    nsenter stays outside as the parent process; if it dies, setpriv's signal ends the child as well.
    """
    target = str(_first_process(layout))
    return [
        *("nsenter", "--target", target, "--mount", "--pid", "--wd=/", "--"),
        *("setpriv", "--pdeathsig", "TERM", "--", *argv),
    ]


def remove(layout: Layout) -> None:
    """Stop everything in the namespaces, and remove the mount points that were created for them.

    Removing a folder unmounts it in all namespaces, so the folders stay while another lab is running.
    """
    Daemon(layout, "node").stop()
    if any(root != layout.root for root in processes.marked().values()):
        return
    for folder in FOLDERS:
        with contextlib.suppress(OSError):  # another program uses it
            Path(folder).rmdir()


def _first_process(layout: Layout) -> int:
    """Return the process ID of the only child of unshare."""
    parent = Daemon(layout, "node").pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split() if parent else []
    if len(children) != 1:
        raise LabError("namespaces of the real node", why="they do not exist", remedy="run `make up`")
    return int(children[0])
