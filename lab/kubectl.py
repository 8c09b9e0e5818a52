"""Run the lab's kubectl, by default with the administrator's kubeconfig."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from lab.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path

    from lab.layout import Layout

TIMEOUT_S = 240.0
"""Longer than what callers let kubectl itself wait, so that its own words are the error."""


def run(layout: Layout, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
    """Return the output of `kubectl <arguments>`.

    Raises:
        LabError: kubectl failed; the cause is its error output.
    """
    command = [str(layout.bin / "kubectl"), f"--kubeconfig={kubeconfig or layout.kubeconfig}", *arguments]
    command_line = f"kubectl {' '.join(arguments)}"
    try:
        done = subprocess.run(
            command, input=stdin or "", capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise LabError(command_line, why="no lab is running here", remedy="run `make up`") from None
    except subprocess.TimeoutExpired:
        raise LabError(command_line, why=f"no response within {TIMEOUT_S:g} s", remedy=f"read {layout.logs}") from None
    if done.returncode:
        raise LabError(command_line, why=done.stderr.strip(), remedy=f"logs are in {layout.logs}")
    return done.stdout


def apply(layout: Layout, *manifests: dict[str, Any]) -> None:
    """Create or update objects as an administrator does, who may go on with `kubectl apply`."""
    run(layout, "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))
