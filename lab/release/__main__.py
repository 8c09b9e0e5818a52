"""`python -m lab.release`: build the wheel, the archive for this platform, and krew's manifest of all archives."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lab.errors import LabError
from lab.release import archive, krew, wheel

MIB = 1024**2


def main(argv: list[str] | None = None) -> int:
    """Run one command; return 0, or 1 after an error message."""
    parser = argparse.ArgumentParser(prog="python -m lab.release", description="Packages of kubectl gpu.")
    parser.add_argument("--folder", type=Path, default=Path("dist"), metavar="FOLDER", help="where they are (dist)")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    commands.add_parser("wheel", help="build the wheel")
    commands.add_parser("archive", help="build an archive for this platform, with its own Python")
    krewing = commands.add_parser("krew", help="write krew's manifest gpu.yaml for the archives in the folder")
    krewing.add_argument("url", help="where the archives will be, for example https://releases.example.com/v0.1.0")
    arguments = parser.parse_args(argv)
    folder: Path = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        match arguments.command:
            case "wheel":
                print(wheel.build(folder))
            case "archive":
                built = archive.build(folder)
                print(f"{built.path}\n{built.sha256}\n{built.path.stat().st_size / MIB:.1f} MiB")
            case _:
                file = folder / f"{krew.PLUGIN}.yaml"
                file.write_text(krew.manifest(archive.find(folder), url=arguments.url), encoding="utf-8")
                print(file)
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
