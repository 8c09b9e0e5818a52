"""Karpenter with a pretend cloud, `kwok`: given by `KARPENTER`, cached, or built from the module in `lab/karpenter`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from lab import go
from lab.errors import LabError
from lab.go_module import GoModule

if TYPE_CHECKING:
    from collections.abc import Callable

MODULE = GoModule(
    folder=Path(__file__).with_name("karpenter"),
    requirement="sigs.k8s.io/karpenter",
    packages={"karpenter": "sigs.k8s.io/karpenter/kwok"},
    stamps=lambda version: {"sigs.k8s.io/karpenter/pkg/operator.Version": version},
    build_gib=3.0,
)
_DEFINITIONS = ("pkg/apis/crds", "kwok/apis/crds")


def provide(*, report: Callable[[str], None] = print) -> Path:
    """Return the binary, and build it if it is neither given nor cached.

    Raises:
        LabError: Go or disk space is missing, or the build failed.
    """
    return MODULE.provide("karpenter", report=report, given_by="KARPENTER")


def definitions() -> list[str]:
    """Return the manifests of Karpenter's CustomResourceDefinitions, which the module has beside its code.

    Raises:
        LabError: Go is missing, or the module cannot be downloaded.
    """
    command: list[str | Path] = [go.provide(lambda _: None), "list", "-m", "-f", "{{.Dir}}", MODULE.requirement]
    done = subprocess.run(
        command, cwd=MODULE.folder, env=go.environment(), capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode or not done.stdout.strip():
        raise LabError(
            "Karpenter's module", why=done.stderr.strip() or "it is not there", remedy="run `go mod download`"
        )
    folders = (Path(done.stdout.strip()) / folder for folder in _DEFINITIONS)
    return [file.read_text(encoding="utf-8") for folder in folders for file in sorted(folder.glob("*.yaml"))]
