"""kube-scheduler's own decisions: its default profile, driven by `lab/kubernetes/scheduling` without an API server."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from lab import binaries
from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_FOLDER = binaries.MODULE / "scheduling"


def provide(*, report: Callable[[str], None] = print) -> Path:
    """Return the program, built unless the cache has it.

    Raises:
        LabError: Go or disk space is missing, or the build failed.
    """
    folder = binaries.cached_folder(sorted(_FOLDER.glob("*.go")))
    return binaries.cached(folder / "scheduling", f"./{_FOLDER.name}", report=report)


def evaluate(clusters: bytes, *, timeout_seconds: float = 300.0) -> bytes:
    """Return kube-scheduler's results for `clusters`, one JSON document a line.

    `Cluster` in cluster.go and `Result` in evaluate.go define the documents.

    Raises:
        LabError: the program cannot be built, or it failed.
    """
    done = subprocess.run([provide()], input=clusters, capture_output=True, timeout=timeout_seconds, check=False)
    if done.returncode:
        why = done.stderr.decode(errors="replace")[-1500:].rstrip()
        raise LabError("scheduling", why=why, remedy="correct the documents, or lab/kubernetes/scheduling")
    return done.stdout
