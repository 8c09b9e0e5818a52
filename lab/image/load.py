"""Import the image into the containerd of a lab's real node."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab.errors import LabError
from lab.image import build

if TYPE_CHECKING:
    from lab.layout import Layout

TIMEOUT_S = 300.0


def load(layout: Layout) -> None:
    """Import the built image.

    Raises:
        LabError: no image was built, or no containerd of this lab is running.
    """
    if not layout.containerd_socket.exists():
        raise LabError(f"containerd of {layout.root}", why="it is not running", remedy="run `make up` as root")
    with tempfile.TemporaryDirectory() as folder:
        archive = build.export(Path(folder) / "image.tar").archive
        done = subprocess.run(
            [
                layout.bin / "ctr",
                f"--address={layout.containerd_socket}",
                "--namespace=k8s.io",
                "images",
                "import",
                archive,
            ],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    if done.returncode:
        raise LabError("import of the image", why=done.stderr.strip(), remedy=f"read {layout.logs}/containerd.log")
