"""Import the image into the containerd of a lab's real node."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from lab.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path

    from lab.layout import Layout

TIMEOUT_S = 300.0


def load(layout: Layout, archive: Path) -> None:
    """Import the image of an OCI archive.

    Raises:
        LabError: containerd refused it, or none of this lab is running.
    """
    require_containerd(layout)
    command = [str(layout.bin / "ctr"), f"--address={layout.containerd_socket}", "--namespace=k8s.io"]
    command += ["images", "import", str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise LabError("import of the image", why=done.stderr.strip(), remedy=f"read {layout.logs}/containerd.log")


def require_containerd(layout: Layout) -> None:
    """Check that the containerd of the lab's real node is there.

    Raises:
        LabError: it is not running.
    """
    if not layout.containerd_socket.exists():
        raise LabError(f"containerd of {layout.root}", why="it is not running", remedy="run `make up` as root")
