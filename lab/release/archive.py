"""Build an archive for krew that contains `kubectl gpu` with its own Python, for the platform that this runs on.

krew links one executable of an archive and installs nothing else, and several packages of the command are compiled for
one version of Python. So the archive has to contain the interpreter; PyInstaller collects it.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import sys
import tarfile
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

from lab.image.build import run, version
from lab.image.requirements import CONSTRAINTS
from lab.release import wheel

NAME = "kubectl-gpu"
_OS = {"linux": "linux", "darwin": "darwin", "win32": "windows"}
_ARCH = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_FILE = re.compile(rf"{NAME}_(?P<version>[^_]+)_(?P<os>[a-z]+)_(?P<arch>[a-z0-9]+)\.(tar\.gz|zip)")
_START = "import sys\nfrom cli.__main__ import main\nsys.exit(main())\n"


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive for one platform; `os` and `arch` are Go's names for it, as krew's selectors have them."""

    path: Path
    version: str
    os: str
    arch: str

    @property
    def sha256(self) -> str:
        """The digest of the file."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    @property
    def executable(self) -> str:
        """The path of the executable in the archive."""
        return f"{NAME}/{NAME}.exe" if self.os == "windows" else f"{NAME}/{NAME}"


def find(folder: Path) -> list[Archive]:
    """Return the archives in `folder`, by name."""
    found = ((path, _FILE.fullmatch(path.name)) for path in sorted(folder.iterdir()))
    return [Archive(path, match["version"], match["os"], match["arch"]) for path, match in found if match]


def build(folder: Path) -> Archive:
    """Build the archive for this platform into `folder`.

    Raises:
        LabError: a package cannot be installed, or PyInstaller failed.
    """
    system, machine = _OS[sys.platform], _ARCH[platform.machine().lower()]
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        built = wheel.build(work)
        venv.create(work / "venv")
        python = str(work / "venv" / ("Scripts/python.exe" if system == "windows" else "bin/python"))
        run(
            *(sys.executable, "-m", "pip", f"--python={python}", "install", "--quiet", "--disable-pip-version-check"),
            *(f"--constraint={CONSTRAINTS}", str(built), "pyinstaller"),
        )
        (work / f"{NAME}.py").write_text(_START, encoding="ascii")
        run(
            *(python, "-m", "PyInstaller", "--log-level=ERROR", "--onedir", f"--name={NAME}"),
            *("--collect-submodules=cli", "--copy-metadata=tranche"),
            *(f"--distpath={work / 'dist'}", f"--workpath={work / 'build'}", f"--specpath={work}"),
            str(work / f"{NAME}.py"),
        )
        file = folder / f"{NAME}_{version()}_{system}_{machine}"
        if system == "windows":
            file = Path(shutil.make_archive(str(file), "zip", root_dir=work / "dist", base_dir=NAME))
        else:
            file = file.with_name(f"{file.name}.tar.gz")
            # The best compression takes three times as long, for a hundredth less.
            with tarfile.open(file, "w:gz", compresslevel=6) as tar:
                tar.add(work / "dist" / NAME, arcname=NAME)
    return Archive(file, version(), system, machine)
