"""Record the state of the cluster for later review: one file per command, with the command as its first line.

It only reads. The output of a failing command is recorded as well, and the remaining files are still written.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lab import demos

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

_LATEST = 20
_SECONDS = 60
_NODES = "kubectl get nodes -o wide -L gpu"
_EVENTS = "kubectl get events -A --sort-by=.lastTimestamp"
COMMANDS = {
    "nodes": _NODES,
    "node-resources": "python -m lab verify",
    "components": "python -m lab status",
    "pods-all": "kubectl get pods -A -o wide",
    "fractional": f"kubectl -n {demos.NAMESPACE} describe pod fractional",
    "overrequest": f"kubectl -n {demos.NAMESPACE} describe pod overrequest",
    "placement": f"kubectl -n {demos.NAMESPACE} get pods -l demo=placement -o wide",
    "scheduler-events": f"{_EVENTS} | grep 'find fit node' | tail -n {_LATEST}",
    "pending-reasons": f"{_EVENTS} | grep -E 'Insufficient|Card' | tail -n {_LATEST}",
}


def record(layout: Layout) -> Iterator[str]:
    """Record the state of the cluster in files, each with the command as its first line."""
    folder = layout.evidence / datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    folder.mkdir(parents=True, exist_ok=True)
    # The commands are recorded as a user types them; this environment makes them refer to this lab.
    environment = {
        **os.environ,
        "KUBECONFIG": str(layout.kubeconfig),
        "LAB_ROOT": str(layout.root),
        "PATH": os.pathsep.join((str(layout.bin), os.path.dirname(sys.executable), os.environ.get("PATH", ""))),  # noqa: PTH120
    }
    for name, command in COMMANDS.items():
        (folder / f"{name}.txt").write_text(f"$ {command}\n{_run(command, environment)}", encoding="utf-8")
    yield f"{len(COMMANDS)} files in {folder}"


def _run(command: str, environment: dict[str, str]) -> str:
    argv = ["sh", "-c", command] if "|" in command else shlex.split(command)
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"failed: {error}\n"
    failed = f"failed with exit code {done.returncode}\n" if done.returncode else ""
    return done.stdout + done.stderr + failed
