"""An image by the name of NVIDIA's, for a node without a registry and without GPUs."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from lab import images
from lab.files import write_private

if TYPE_CHECKING:
    from lab.layout import Layout

NAME = "docker.io/nvidia/cuda:12.4.1-runtime-ubuntu22.04"
MODEL = "NVIDIA GeForce RTX 5080"
MEMORY_MIB = 16303
_BASH = """#!/bin/sh
exec /bin/sh "$@"
"""
# NVIDIA's runtime puts nvidia-smi into the container; it sees the cards that this variable names, counted from 0.
_NVIDIA_SMI = f"""#!/bin/sh
[ "$1" = -L ] || echo 'index, name, memory.total [MiB]'
index=0
for card in $(echo "$NVIDIA_VISIBLE_DEVICES" | tr , ' '); do
  if [ "$1" = -L ]; then
    echo "GPU $index: {MODEL} (UUID: ${{card##*=}})"
  else
    echo "$index, {MODEL}, {MEMORY_MIB} MiB"
  fi
  index=$((index + 1))
done
"""


def load(layout: Layout) -> None:
    """Import the image into the containerd of the real node."""
    program, applets = images.read_busybox()
    archive = images.archive(
        (images.Image(NAME, ("sh",)),),
        program=program,
        applets=applets,
        scripts={"bin/bash": _BASH, "usr/bin/nvidia-smi": _NVIDIA_SMI},
    )
    file = write_private(layout.root / "cuda.tar", archive)
    ctr = (layout.bin / "ctr", f"--address={layout.containerd_socket}", "--namespace=k8s.io")
    subprocess.run([*ctr, "images", "import", file], check=True, capture_output=True, timeout=60)
