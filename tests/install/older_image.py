"""An image of an older version, to upgrade from: its processes are those of this one, and say another version."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab.image import build, load

if TYPE_CHECKING:
    from lab.layout import Layout

VERSION = "0.0.1"
NAME = f"{build.PREFIX}tranche:{VERSION}"
METADATA = f"Metadata-Version: 2.1\nName: tranche\nVersion: {VERSION}\n"
CONTAINERFILE = f"""
FROM {build.name()}
LABEL org.opencontainers.image.version="{VERSION}"
COPY METADATA /opt/tranche/tranche-{build.version()}.dist-info/METADATA
"""


def provide(layout: Layout) -> None:
    """Build the image on the built one, and import it into the containerd of the lab's real node."""
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        (context / "METADATA").write_text(METADATA, encoding="utf-8")
        (context / "Containerfile").write_text(CONTAINERFILE, encoding="utf-8")
        archive = context / "image.tar"
        build.run("buildah", "bud", "--quiet", "--timestamp=0", "--layers=false", f"--tag={NAME}", folder)
        # Compressing it takes longer than everything else.
        build.run("buildah", "push", "--quiet", "--disable-compression", NAME, f"oci-archive:{archive}:{NAME}")
        load.load(layout, archive)
