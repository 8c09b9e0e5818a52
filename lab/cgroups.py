"""The control group of a lab's pods: each lab has its own, so that it never removes the pods of another lab."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from lab import wait
from lab.errors import LabError

if TYPE_CHECKING:
    from lab.layout import Layout

MOUNT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuset", "memory", "pids", "hugetlb", "io")
REMOVAL_S = 10.0


def create(layout: Layout) -> None:
    """Create the group in every hierarchy: the kubelet requires its root to exist.

    Raises:
        LabError: the machine does not allow it.
    """
    try:
        if (MOUNT / "cgroup.subtree_control").exists():
            for controller in CONTROLLERS:
                with contextlib.suppress(OSError):  # a kernel may lack some of them
                    (MOUNT / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")
        for hierarchy in _hierarchies():
            (hierarchy / layout.cgroup).mkdir(exist_ok=True)
    except OSError as error:
        raise LabError(
            f"control group {layout.cgroup}",
            why=str(error),
            remedy="use another machine, or pass --no-real-node",
        ) from error


def remove(layout: Layout) -> None:
    """Remove the group from every hierarchy, after its processes have ended.

    Raises:
        LabError: a process in it is still alive.
    """
    wait.until(
        lambda: all(_remove(group) for group in existing(layout)),
        what=f"removal of control group {layout.cgroup}",
        timeout_s=REMOVAL_S,
        remedy=f"see which processes {MOUNT}/*/{layout.cgroup}/**/cgroup.procs name",
    )


def existing(layout: Layout) -> list[Path]:
    """Return the existing folders of the group, one per hierarchy."""
    return [group for hierarchy in _hierarchies() if (group := hierarchy / layout.cgroup).exists()]


def _hierarchies() -> list[Path]:
    """Return the only hierarchy of cgroup v2, or one per controller of v1, where names may be links."""
    if (MOUNT / "cgroup.controllers").exists():
        return [MOUNT]
    return [entry for entry in MOUNT.iterdir() if entry.is_dir() and not entry.is_symlink()] if MOUNT.exists() else []


def _remove(group: Path) -> bool:
    """Remove a group and its subgroups, the innermost first. The kernel removes the files in them."""
    for folder, _, _ in os.walk(group, topdown=False):
        try:
            Path(folder).rmdir()
        except FileNotFoundError:
            continue
        except OSError:  # its last process is still exiting
            return False
    return True
