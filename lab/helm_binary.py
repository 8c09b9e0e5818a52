"""Helm: given by `HELM`, cached, or built from the module in `lab/helm`, whose hashes go.sum pins."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from lab import cache, go
from lab.errors import LabError
from lab.lock import exclusive

if TYPE_CHECKING:
    from collections.abc import Callable

MODULE = Path(__file__).with_name("helm")
PACKAGE = "helm.sh/helm/v3/cmd/helm"
BUILD_GIB = 3.0
BUILD_TIMEOUT_S = 1800.0


def version() -> str:
    """Return the version that go.mod pins: `v3.22.0`."""
    return _required("helm.sh/helm/v3")


def cached() -> Path:
    """Return the path of the built binary; it depends on the content of the module and on the flags."""
    digest = hashlib.sha256("\0".join((platform.system(), platform.machine(), *_flags())).encode())
    for file in ("go.mod", "go.sum"):
        digest.update((MODULE / file).read_bytes())
    return cache.folder() / f"helm-{version()}-{digest.hexdigest()[:12]}" / "helm"


def provide(*, report: Callable[[str], None] = print) -> Path:
    """Return the binary, and build it if it is neither given nor cached.

    Raises:
        LabError: Go or disk space is missing, or the build failed.
    """
    if given := os.environ.get("HELM"):
        return Path(given).absolute()
    binary = cached()
    if not binary.exists():
        with exclusive(cache.folder() / "helm.lock", holder="a build of Helm", wait=report):
            # The previous holder of the lock may have built it.
            if not binary.exists():
                _build(binary, report=report)
    return binary


def _build(binary: Path, *, report: Callable[[str], None]) -> None:
    """Build the binary; it appears in the cache only when it is complete."""
    toolchain = go.provide(report, minimum=_go_version())
    cache.require_space(binary, gib=BUILD_GIB, purpose="building Helm")
    binary.parent.mkdir(parents=True, exist_ok=True)
    report(f"building Helm {version()}: about three minutes on two free cores")
    partial = binary.with_name(".helm.partial")
    done = subprocess.run(
        [toolchain, "build", *_flags(), "-o", partial, PACKAGE],
        cwd=MODULE,
        env=go.environment(),
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise LabError("build of Helm", why=done.stderr.strip()[-1500:], remedy="or set HELM to a Helm binary")
    partial.replace(binary)


def _go_version() -> tuple[int, int]:
    """Return the oldest Go that go.mod permits."""
    match = re.search(r"^go (\d+)\.(\d+)", (MODULE / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    return (int(match[1]), int(match[2])) if match else go.MINIMUM


def _flags() -> list[str]:
    """Return the build flags. Without a cluster, Helm assumes the Kubernetes version that is stamped here."""
    _, minor, _ = _required("k8s.io/client-go").split(".")
    stamps = {
        "internal/version.version": version(),
        "pkg/chartutil.k8sVersionMajor": "1",
        "pkg/chartutil.k8sVersionMinor": minor,
    }
    linker = " ".join(f"-X helm.sh/helm/v3/{name}={value}" for name, value in stamps.items())
    return ["-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", f"-s -w {linker}"]


def _required(module: str) -> str:
    """Return the version of a module in go.mod."""
    required = (MODULE / "go.mod").read_text(encoding="utf-8")
    match = re.search(rf"^\s*(?:require )?{re.escape(module)} (v[\d.]+)\b", required, re.MULTILINE)
    if match is None:
        raise LabError(f"{MODULE}/go.mod", why=f"it does not require {module}", remedy="restore the file")
    return match[1]
