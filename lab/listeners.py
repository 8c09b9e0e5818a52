"""Find the process that listens on a port through /proc, so that error messages can name it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTEN = "0A"  # TCP_LISTEN, include/net/tcp_states.h


def listener(port: int) -> str:
    """Return `pid 4242 (python3)`, or `another process` if /proc does not show the owner of the socket.

    Only root can see the sockets of other users' processes.
    """
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and sockets & _open_files(process):
            return f"pid {process.name} ({_name(process)})"
    return "another process"


def _inodes(port: int) -> set[str]:
    """Return the inodes of the sockets that listen on `port`, on any address (proc(5), /proc/net/tcp)."""
    rows = [line.split() for table in _TABLES if table.exists() for line in table.read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[3] == _LISTEN and int(row[1].rpartition(":")[2], 16) == port}


def _open_files(process: Path) -> set[str]:
    """Return the targets of a process's file descriptors; none if it has exited or belongs to another user."""
    targets = set()
    with contextlib.suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):  # closed in the meantime
                targets.add(os.readlink(descriptor))  # noqa: PTH115 -- `socket:[1]` is not a path
    return targets


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "ended"
