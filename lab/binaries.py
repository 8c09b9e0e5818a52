"""The Kubernetes binaries: given, cached, or built from the module in `lab/kubernetes`.

`KUBEBUILDER_ASSETS`, the convention of controller-runtime's envtest, comes first: it makes builds unnecessary.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lab.errors import LabError
from lab.files import link
from lab.go_module import GoModule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Each binary and its Go package, in the order in which a cluster needs them.
PACKAGES = {
    "etcd": "./etcd",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
}


def _stamps(version: str) -> dict[str, str]:
    """Return the version variables; without them, kubectl and the kubelet reject the server's version string."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return {f"k8s.io/component-base/version.{field}": value for field, value in values.items()}


MODULE = GoModule(
    folder=Path(__file__).with_name("kubernetes"),
    requirement="k8s.io/kubernetes",
    packages=PACKAGES,
    stamps=_stamps,
    # Measured: 3.2 GB of build cache, 0.8 GB of modules, 0.4 GB of binaries, and the linker's temporary files.
    build_gib=6.0,
    sources=("etcd/main.go",),
)

# A newer API server, kube-scheduler and kubelet, which share devices by DRA: for the tests marked `dra`.
DRA_MODULE = replace(
    MODULE,
    folder=Path(__file__).with_name("kubernetes-1.37"),
    packages={name: PACKAGES[name] for name in ("kube-apiserver", "kube-scheduler", "kubelet")},
    sources=(),
)


def kubernetes_version() -> str:
    """Return the version that go.mod pins, in the form that Kubernetes prints: `v1.34.4`."""
    return MODULE.version


def provide(folder: Path, names: Iterable[str] = PACKAGES, *, report: Callable[[str], None] = print) -> None:
    """Link each of `names` into `folder`, and build the binaries that are neither given nor cached.

    Raises:
        LabError: given binaries have another version, Go or disk space is missing, or the build failed.
    """
    given = _given()
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        link(folder / name, given.get(name) or MODULE.provide(name, report=report))


def provide_for_dra(folder: Path, names: Iterable[str] = PACKAGES, *, report: Callable[[str], None] = print) -> None:
    """Link each of `names` into `folder`; API server, kube-scheduler and kubelet are those of `lab/kubernetes-1.37`.

    Raises:
        LabError: as `provide`.
    """
    wanted = tuple(names)
    provide(folder, [name for name in wanted if name not in DRA_MODULE.packages], report=report)
    for name in wanted:
        if name in DRA_MODULE.packages:
            link(folder / name, DRA_MODULE.provide(name, report=report))


def missing(names: Iterable[str] = PACKAGES) -> list[str]:
    """Return those of `names` that would have to be built."""
    given = _given()
    return MODULE.missing(name for name in names if name not in given)


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
