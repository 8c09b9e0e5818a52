"""The control group under which a lab's pods live, so that two labs never clean up each other's pods."""

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
    """Make the group in every hierarchy: the kubelet wants its root to exist.

    Raises:
        LabError: the machine does not let us.
    """
    try:
        if (MOUNT / "cgroup.subtree_control").exists():
            for controller in CONTROLLERS:
                with contextlib.suppress(OSError):  # a kernel need not have all of them
                    (MOUNT / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")
        for hierarchy in _hierarchies():
            (hierarchy / layout.cgroup).mkdir(exist_ok=True)
    except OSError as error:
        raise LabError(
            f"control group {layout.cgroup}", why=str(error), remedy="use a machine that allows it, or --no-real-node"
        ) from error


def remove(layout: Layout) -> None:
    """Remove the group from every hierarchy, after its processes have ended.

    Raises:
        LabError: a process in it lives on.
    """
    wait.until(
        lambda: all(_remove(group) for group in existing(layout)),
        what=f"removal of control group {layout.cgroup}",
        timeout_s=REMOVAL_S,
        remedy=f"see which processes {MOUNT}/*/{layout.cgroup}/**/cgroup.procs name",
    )


def existing(layout: Layout) -> list[Path]:
    """The group's folders, one for each hierarchy."""
    return [group for hierarchy in _hierarchies() if (group := hierarchy / layout.cgroup).exists()]


def _hierarchies() -> list[Path]:
    """One with cgroup v2; one for each controller with v1, where several names may lead to the same."""
    if (MOUNT / "cgroup.controllers").exists():
        return [MOUNT]
    return [entry for entry in MOUNT.iterdir() if entry.is_dir() and not entry.is_symlink()] if MOUNT.exists() else []


def _remove(group: Path) -> bool:
    """Remove a group and those in it, the innermost first. The files in it are the kernel's."""
    for folder, _, _ in os.walk(group, topdown=False):
        try:
            Path(folder).rmdir()
        except FileNotFoundError:
            continue
        except OSError:  # its last process has not quite gone
            return False
    return True
