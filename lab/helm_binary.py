"""Helm 3 and 4: given by `HELM` and `HELM4`, cached, or built from the modules in `lab/helm` and `lab/helm4`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lab.go_module import GoModule

if TYPE_CHECKING:
    from collections.abc import Callable

# Without a cluster, Helm 3 assumes the Kubernetes version that is stamped here: that of its own client library, which
# Helm 4 finds out itself.
HELM_3 = GoModule(
    folder=Path(__file__).with_name("helm"),
    requirement="helm.sh/helm/v3",
    packages={"helm": "helm.sh/helm/v3/cmd/helm"},
    stamps=lambda version: {
        "helm.sh/helm/v3/internal/version.version": version,
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": "1",
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": "37",
    },
    build_gib=3.0,
)
HELM_4 = GoModule(
    folder=Path(__file__).with_name("helm4"),
    requirement="helm.sh/helm/v4",
    packages={"helm": "helm.sh/helm/v4/cmd/helm"},
    stamps=lambda version: {"helm.sh/helm/v4/internal/version.version": version},
    build_gib=3.0,
)


def provide(module: GoModule = HELM_3, *, report: Callable[[str], None] = print) -> Path:
    """Return the binary of one major version, and build it if it is neither given nor cached.

    Raises:
        LabError: Go or disk space is missing, or the build failed.
    """
    return module.provide("helm", report=report, given_by="HELM4" if module is HELM_4 else "HELM")
