"""The lab's own kubectl, with the administrator's kubeconfig unless told otherwise."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from lab.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path

    from lab.layout import Layout

TIMEOUT_S = 60.0


def run(layout: Layout, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
    """What `kubectl <arguments>` prints.

    Raises:
        LabError: kubectl failed, in its own words.
    """
    command = [str(layout.bin / "kubectl"), f"--kubeconfig={kubeconfig or layout.kubeconfig}", *arguments]
    spoken = f"kubectl {' '.join(arguments)}"
    try:
        done = subprocess.run(
            command, input=stdin or "", capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise LabError(spoken, why="there is no cluster here", remedy="run `python -m lab up`") from None
    except subprocess.TimeoutExpired:
        raise LabError(spoken, why=f"no answer within {TIMEOUT_S:g} s", remedy=f"read {layout.logs}") from None
    if done.returncode:
        raise LabError(spoken, why=done.stderr.strip(), remedy=f"logs are in {layout.logs}")
    return done.stdout


def get(layout: Layout, *arguments: str) -> Any:
    """The decoded answer of `kubectl get <arguments> -o json`."""
    return json.loads(run(layout, "get", *arguments, "-o", "json"))


def apply(layout: Layout, *manifests: dict[str, Any]) -> None:
    """Create or update objects."""
    run(layout, "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))
