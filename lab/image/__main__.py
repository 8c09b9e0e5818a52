"""`python -m lab.image`: build, load and push the image."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from lab import base_port
from lab.errors import LabError
from lab.image import build, load

MIB = 1024**2


def main(argv: list[str] | None = None) -> int:
    """Run one command; return 0, or 1 after an error message."""
    parser = argparse.ArgumentParser(prog="python -m lab.image", description="Tranche's container image.")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    building = commands.add_parser("build", help="build it into the local store and an OCI archive")
    building.add_argument("--base", default="", metavar="IMAGE", help="an image with Python 3.11 and pip")
    building.add_argument("--archive", type=Path, default=Path("dist/tranche.oci.tar"), metavar="FILE")
    loading = commands.add_parser("load", help="import it into the containerd of a running lab")
    loading.add_argument("--root", type=Path, default=Path(".lab"), metavar="FOLDER", help="the lab's folder (.lab)")
    pushing = commands.add_parser("push", help="push it to a registry")
    pushing.add_argument("registry", help="for example registry.example.com/team")
    arguments = parser.parse_args(argv)
    try:
        match arguments.command:
            case "build":
                built = build.build(arguments.archive.resolve(), base_image=arguments.base)
                size = built.compressed_bytes / MIB
                print(f"{build.name()}\n{built.digest}\n{size:.1f} MiB compressed, in {built.archive}")
            case "load":
                layout = base_port.find(arguments.root.resolve(), asked=None)
                load.require_containerd(layout)  # before the image is compressed
                with tempfile.TemporaryDirectory() as folder:
                    load.load(layout, build.export(Path(folder) / "image.tar").archive)
                print(f"{build.name()} is in the lab's containerd")
            case _:
                print(f"pushed {build.push(arguments.registry)}")
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
