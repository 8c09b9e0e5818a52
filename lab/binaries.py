"""The Kubernetes binaries: given, cached, or built from the module in `lab/kubernetes`.

`KUBEBUILDER_ASSETS`, the convention of controller-runtime's envtest, comes first: it makes builds unnecessary.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lab import cache, go
from lab.errors import LabError
from lab.files import link
from lab.lock import exclusive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MODULE = Path(__file__).with_name("kubernetes")
# Each binary and its Go package, in the order in which a cluster needs them.
PACKAGES = {
    "etcd": "./etcd",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
}
# Measured: 3.2 GB of build cache, 0.8 GB of modules, 0.4 GB of binaries, and the linker's temporary files.
BUILD_GIB = 6.0
BUILD_TIMEOUT_S = 1800.0
HEARTBEAT_S = 30.0


def kubernetes_version() -> str:
    """Return the version that go.mod pins, in the form that Kubernetes prints: `v1.34.4`."""
    required = (MODULE / "go.mod").read_text(encoding="utf-8")
    match = re.search(r"^\s*k8s\.io/kubernetes (v[\d.]+)\b", required, re.MULTILINE)
    if match is None:
        raise LabError(f"{MODULE}/go.mod", why="it does not require k8s.io/kubernetes", remedy="restore the file")
    return match[1]


def provide(folder: Path, names: Iterable[str] = PACKAGES, *, report: Callable[[str], None] = print) -> None:
    """Link each of `names` into `folder`, and build the binaries that are neither given nor cached.

    Raises:
        LabError: given binaries have another version, Go or disk space is missing, or the build failed.
    """
    given = _given()
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        link(folder / name, given.get(name) or cached(cached_folder() / name, PACKAGES[name], report=report))


def cached_folder(sources: Iterable[Path] = (MODULE / "etcd" / "main.go",)) -> Path:
    """Return the folder for binaries built from `sources`; it depends also on go.mod, go.sum and the flags."""
    digest = hashlib.sha256("\0".join((platform.system(), platform.machine(), *_flags())).encode())
    for file in (MODULE / "go.mod", MODULE / "go.sum", *sources):
        digest.update(file.read_bytes())
    return cache.folder() / f"kubernetes-{kubernetes_version()}-{digest.hexdigest()[:12]}"


def missing(names: Iterable[str] = PACKAGES) -> list[str]:
    """Return those of `names` that would have to be built."""
    given, folder = _given(), cached_folder()
    return [name for name in names if name not in given and not (folder / name).exists()]


def _given() -> dict[str, Path]:
    """Return the binaries in `KUBEBUILDER_ASSETS`.

    Raises:
        LabError: some are missing, and the version of the server does not match those that would be built.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        return {}
    given = {name: path for name in PACKAGES if os.access(path := Path(assets).absolute() / name, os.X_OK)}
    lacking = sorted(PACKAGES.keys() - given.keys())
    if lacking and (server := given.get("kube-apiserver")):
        theirs, ours = _server_version(server), kubernetes_version()
        if theirs.rpartition(".")[0] != ours.rpartition(".")[0]:
            raise LabError(
                f"KUBEBUILDER_ASSETS={assets}",
                why=f"its kube-apiserver is {theirs}, and {', '.join(lacking)} would be built as {ours}",
                remedy="add these to the folder, or unset KUBEBUILDER_ASSETS to build all of them",
            )
    return given


def _server_version(server: Path) -> str:
    """Return `v1.34.4` for a kube-apiserver that prints `Kubernetes v1.34.4`."""
    try:
        output = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        output = ""
    return output.strip().rpartition(" ")[2] or "of unknown version"


def cached(binary: Path, package: str, *, report: Callable[[str], None] = print) -> Path:
    """Return `binary`, built from a Go package unless it exists.

    Raises:
        LabError: Go or disk space is missing, or the build failed.
    """
    if not binary.exists():
        with exclusive(cache.folder() / "build.lock", holder=f"a build of {binary.name}", wait=report):
            # The previous holder of the lock may have built it.
            if not binary.exists():
                _build(binary, package, report=report)
    return binary


def _build(binary: Path, package: str, *, report: Callable[[str], None]) -> None:
    """Build one binary; it appears in the cache only when it is complete."""
    name = binary.name
    toolchain = go.provide(report)
    binary.parent.mkdir(parents=True, exist_ok=True)
    for folder in (binary.parent, *_go_folders(toolchain)):
        cache.require_space(folder, gib=BUILD_GIB, purpose=f"building {name}")
    partial = binary.with_name(f".{name}.partial")
    log = binary.with_name(f"{name}.build.log")
    began = time.monotonic()
    with log.open("wb") as output:
        compiler = subprocess.Popen(
            [toolchain, "build", *_flags(), "-o", partial, package],
            cwd=MODULE,
            env=go.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            _follow(compiler, name=name, began=began, report=report)
        finally:
            compiler.kill()
            compiler.wait()
    if compiler.returncode:
        tail = log.read_text(encoding="utf-8", errors="replace")[-1500:].rstrip()
        raise LabError(f"build of {name}", why=f"go exited with {compiler.returncode}\n{tail}", remedy=f"read {log}")
    partial.replace(binary)
    report(f"built {name} in {time.monotonic() - began:.0f} s")


def _follow(compiler: subprocess.Popen[bytes], *, name: str, began: float, report: Callable[[str], None]) -> None:
    """Wait for the compiler, and report progress at intervals."""
    while (elapsed := time.monotonic() - began) < BUILD_TIMEOUT_S:
        try:
            compiler.wait(timeout=HEARTBEAT_S)
        except subprocess.TimeoutExpired:
            report(f"building {name}: {time.monotonic() - began:.0f} s so far (the first time takes minutes)")
        else:
            return
    raise LabError(
        f"build of {name}", why=f"not finished after {elapsed:.0f} s", remedy="try again: compiled packages are kept"
    )


def _go_folders(toolchain: Path) -> list[Path]:
    """Return the folders of Go's build cache and module cache."""
    done = subprocess.run(
        [toolchain, "env", "GOCACHE", "GOMODCACHE"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=go.environment(),
    )
    return [Path(line) for line in done.stdout.splitlines()]


def _flags() -> list[str]:
    """Return the build flags; without a version, kubectl and the kubelet reject the server's version string."""
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".", 2)
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    linker = " ".join(f"-X k8s.io/component-base/version.{field}={value}" for field, value in stamps.items())
    return ["-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", f"-s -w {linker}"]
