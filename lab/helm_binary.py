"""Helm: given by `HELM`, cached, or built from the module in `lab/helm`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lab.go_module import GoModule

if TYPE_CHECKING:
    from collections.abc import Callable

_IMPORT_PATH = "helm.sh/helm/v3"
# Without a cluster, Helm assumes the Kubernetes version that is stamped here: that of its own client library.
MODULE = GoModule(
    folder=Path(__file__).with_name("helm"),
    requirement=_IMPORT_PATH,
    packages={"helm": f"{_IMPORT_PATH}/cmd/helm"},
    stamps=lambda version: {
        f"{_IMPORT_PATH}/internal/version.version": version,
        f"{_IMPORT_PATH}/pkg/chartutil.k8sVersionMajor": "1",
        f"{_IMPORT_PATH}/pkg/chartutil.k8sVersionMinor": "37",
    },
    build_gib=3.0,
)


def provide(*, report: Callable[[str], None] = print) -> Path:
    """Return the binary, and build it if it is neither given nor cached.

    Raises:
        LabError: Go or disk space is missing, or the build failed.
    """
    given = os.environ.get("HELM")
    return Path(given).absolute() if given else MODULE.provide("helm", report=report)
