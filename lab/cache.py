"""The folder for files that several labs share: built binaries and, if the machine has none, Go."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from lab.errors import LabError

GIB = 1024**3


def folder() -> Path:
    """Return `$TRANCHE_CACHE`, or a folder in the user's cache folder (XDG Base Directory Specification)."""
    if own := os.environ.get("TRANCHE_CACHE"):
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "tranche"


def free_gib(path: Path) -> float:
    """Return the free space, in GiB, of the file system that `path` is or will be on."""
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    return shutil.disk_usage(existing).free / GIB


def require_space(path: Path, *, gib: float, purpose: str) -> None:
    """Refuse a step that would fill the disk.

    Raises:
        LabError: less than `gib` GiB are free where `path` is.
    """
    if (free := free_gib(path)) < gib:
        raise LabError(
            f"disk of {path}",
            why=f"{free:.1f} GiB are free, {purpose} needs {gib:g} GiB",
            remedy="free some space, or set TRANCHE_CACHE, GOCACHE and GOMODCACHE to folders on a larger disk",
        )
