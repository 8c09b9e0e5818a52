"""kube-scheduler's own decisions: its default profile, driven by `lab/kubernetes/scheduling` without an API server."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lab import binaries
from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_PROGRAM: Final = "scheduling"
_SOURCES = sorted((binaries.MODULE.folder / _PROGRAM).glob("*.go"))
_MODULE = replace(
    binaries.MODULE,
    packages={_PROGRAM: f"./{_PROGRAM}"},
    sources=tuple(str(source.relative_to(binaries.MODULE.folder)) for source in _SOURCES),
)


def provide(*, report: Callable[[str], None] = print) -> Path:
    """Return the program, built unless the cache has it.

    Raises:
        LabError: Go or disk space is missing, or the build failed.
    """
    return _MODULE.provide(_PROGRAM, report=report)


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
