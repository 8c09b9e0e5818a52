"""Build the wheel from a copy of the sources, because setuptools leaves files in the folder that it builds in."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from lab.image.build import ROOT, run

_PROJECT = ("pyproject.toml", "README.md")
_PACKAGES = ("allocation", "cluster", "webhook", "scheduler", "agent", "certs", "cli")


def build(folder: Path) -> Path:
    """Build the wheel of the working tree into `folder`, and return it.

    Raises:
        LabError: the build failed.
    """
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary)
        for name in _PROJECT:
            shutil.copyfile(ROOT / name, copy / name)
        for name in _PACKAGES:
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        run(
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("--no-build-isolation", f"--wheel-dir={folder}", str(copy)),
        )
    return next(folder.glob("tranche-*.whl"))
