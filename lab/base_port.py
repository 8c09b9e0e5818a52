"""The ports of a lab: those of its start; for a new lab the requested ones, or the first free block."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lab import ports, processes
from lab.errors import LabError
from lab.layout import DEFAULT_BASE_PORT, PORT_BLOCK, Layout, Port, remembered

if TYPE_CHECKING:
    from pathlib import Path

VARIABLE = "LAB_BASE_PORT"
# Above it, Linux picks the local ports of outgoing connections (net.ipv4.ip_local_port_range).
_LAST = 32700


def from_environment(root: Path) -> int | None:
    """Return the base port in LAB_BASE_PORT, or None if it is not set.

    Raises:
        LabError: the value is not a base port.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    if not text.isdecimal():
        raise LabError(
            f"{VARIABLE}={text}", why="it is not a number", remedy=f"unset it, or set {DEFAULT_BASE_PORT} for example"
        )
    return Layout(root=root, base_port=int(text)).base_port


def find(root: Path, *, asked: int | None = None) -> Layout:
    """Return the lab that was started in `root`, regardless of `asked` and LAB_BASE_PORT.

    If none was started, return the lab that a start would create. An invalid LAB_BASE_PORT counts as unset, so that a
    command can still report that no lab is running.
    """
    if started := remembered(root):
        return started
    if asked is not None:
        return Layout(root=root, base_port=asked)
    try:
        return Layout(root=root, base_port=from_environment(root) or DEFAULT_BASE_PORT)
    except LabError:
        return Layout(root=root)


def choose(root: Path, *, asked: int | None = None) -> tuple[Layout, str]:
    """Return the lab that a start in `root` uses, and a line about its ports.

    An existing cluster keeps its ports, because its certificates and objects contain its addresses. A new one takes
    the ports that `asked` or LAB_BASE_PORT requests, or the first block without a taken port.

    Raises:
        LabError: the cluster has other ports than the requested ones, or these or all blocks are taken.
    """
    requested = asked if asked is not None else from_environment(root)
    started = remembered(root)
    if started and started.has_cluster:
        if requested not in (None, started.base_port):
            raise LabError(
                f"lab in {root}",
                why=f"it was started with base port {started.base_port}, not {requested}",
                remedy=f"run `make down` first, unset {VARIABLE}, or set LAB_ROOT to another folder",
            )
        if not processes.strays(started):
            ports.require_free(started, Port)
        return started, f"{_block(started)}, as before"
    if requested is not None:
        layout = Layout(root=root, base_port=requested)
        remedy = f"unset {VARIABLE} (leave out --base-port) to let the lab choose free ports"
        ports.require_free(layout, Port, remedy=remedy)
        return layout, f"{_block(layout)}, as requested"
    return _first_free(root)


def _first_free(root: Path) -> tuple[Layout, str]:
    default = Layout(root=root)
    held = ports.still_taken(default, Port)
    if not held:
        return default, _block(default)
    for base_port in range(DEFAULT_BASE_PORT + PORT_BLOCK, _LAST + 1, PORT_BLOCK):
        layout = Layout(root=root, base_port=base_port)
        if not ports.taken(layout, Port):
            return layout, f"{_block(layout)}: {ports.describe(default, held)}"
    raise LabError(
        f"lab in {root}",
        why=f"each block of {PORT_BLOCK} ports from {DEFAULT_BASE_PORT} to {_LAST} has a taken port",
        remedy=f"set {VARIABLE} to a multiple of {PORT_BLOCK} with {len(Port)} free ports after it",
    )


def _block(layout: Layout) -> str:
    return f"{layout.base_port} to {layout.base_port + max(Port)}"
