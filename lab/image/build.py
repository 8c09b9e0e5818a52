"""Build the image with buildah, which needs no daemon, and export it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.errors import LabError
from lab.image import base, requirements

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = requirements.ROOT
PROGRAMS = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "git": "git"}
# containerd, like Docker, reads the short name in the manifests as this one.
PREFIX = "docker.io/library/"
LAB_BASE, LAB_BUILDER = "localhost/tranche-base", "localhost/tranche-builder"
SITE_PACKAGES = "usr/lib/python3/dist-packages"
# pip's configuration and trusted certificates, where the machine needs its own to reach the package index.
HOST_FILES = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class Built:
    """An image in an OCI archive.

    Attributes:
        archive: the file.
        digest: the digest of the manifest, by which a registry names the image.
        compressed_bytes: the size of all layers as they are pulled.
    """

    archive: Path
    digest: str
    compressed_bytes: int


def version() -> str:
    """Return the version of pyproject.toml, which is also the tag."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def name() -> str:
    """Return the image's full name."""
    return f"{PREFIX}tranche:{version()}"


def unsupported() -> list[str]:
    """Return what this machine lacks to build an image, each with its remedy."""
    if os.geteuid() != 0:
        return ["not root: run as root, or use `docker build .`"]
    return [
        f"{program} is not installed: apt-get install {package}"
        for program, package in PROGRAMS.items()
        if not shutil.which(program)
    ]


def build(archive: Path, *, base_image: str = "", report: Callable[[str], None] = print) -> Built:
    """Build the image from the working tree into an OCI archive.

    Args:
        archive: the file to write.
        base_image: an image with Python 3.11 and pip; without one, the base is built from Debian packages.
        report: called with each line of progress.

    Raises:
        LabError: a program is missing, or a step failed.
    """
    if missing := unsupported():
        raise LabError("image", why="; ".join(missing), remedy="or run `docker build .` elsewhere")
    bases = (base_image, base_image) if base_image else _lab_bases(report)
    commit, epoch = (
        _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"),
        _git("log", "-1", "--format=%ct"),
    )
    volumes = [f"--volume={file}:{file}:ro" for file in HOST_FILES if Path(file).exists()]
    arguments = {
        "BASE": bases[0],
        "BUILDER": bases[1],
        "VERSION": version(),
        "REVISION": commit,
        "SOURCE_DATE_EPOCH": epoch,
    }
    report(f"building {name()} of commit {commit[:12]}")
    _buildah(
        *("bud", "--isolation=chroot", "--layers=false", f"--timestamp={epoch}", *volumes),
        *(f"--build-arg={key}={value}" for key, value in arguments.items()),
        *(f"--tag={name()}", f"--file={ROOT / 'Containerfile'}", str(ROOT)),
    )
    return export(archive)


def export(archive: Path) -> Built:
    """Write the built image to an OCI archive."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)
    _buildah("push", "--quiet", name(), f"oci-archive:{archive}:{name()}")
    return read(archive)


def read(archive: Path) -> Built:
    """Return what an OCI archive with one image says of itself."""
    with tarfile.open(archive) as tar:
        digest = str(read_json(tar, "index.json")["manifests"][0]["digest"])
        manifest = read_json(tar, f"blobs/{digest.replace(':', '/')}")
    return Built(archive, digest, sum(layer["size"] for layer in manifest["layers"]))


def push(registry: str) -> str:
    """Push the built image to `registry` and return its name there."""
    target = f"{registry.rstrip('/')}/tranche:{version()}"
    _buildah("push", "--quiet", name(), f"docker://{target}")
    return target


def _lab_bases(report: Callable[[str], None]) -> tuple[str, str]:
    """Build a base without pip, and the same with it, and return their names."""
    archive = base.provide(report)
    tag = archive.stem
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        _scratch(f"{LAB_BASE}:{tag}", f"FROM scratch\nADD {archive.name} /\n", context, archive)
        run(
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--no-compile"),
            *(f"--target={context / 'pip'}", f"--requirement={requirements.BUILD}"),
        )
        _scratch(f"{LAB_BUILDER}:{tag}", f"FROM {LAB_BASE}:{tag}\nCOPY pip /{SITE_PACKAGES}\n", context)
    return f"{LAB_BASE}:{tag}", f"{LAB_BUILDER}:{tag}"


def _scratch(tag: str, containerfile: str, context: Path, archive: Path | None = None) -> None:
    """Build a small image from the files in `context`, with `archive` linked into it."""
    file = context / "Containerfile"
    file.write_text(containerfile, encoding="utf-8")
    if archive is not None:
        shutil.copyfile(archive, context / archive.name)
    _buildah("bud", "--quiet", "--timestamp=0", "--layers=false", f"--tag={tag}", f"--file={file}", str(context))


def read_json(tar: tarfile.TarFile, path: str) -> dict[str, Any]:
    """Return a JSON document of an OCI archive."""
    file = tar.extractfile(path)
    if file is None:
        raise LabError(f"OCI archive {tar.name!r}", why=f"{path} is not a file", remedy="build the image again")
    content: dict[str, Any] = json.load(file)
    return content


def _git(*arguments: str) -> str:
    return run("git", "-C", str(ROOT), *arguments).strip()


def _buildah(*arguments: str) -> str:
    return run("buildah", *arguments)


def run(*command: str) -> str:
    """Return the output of a program.

    Raises:
        LabError: it failed.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise LabError(
            " ".join(command[:3]),
            why=(done.stdout + done.stderr).strip()[-2000:],
            remedy=f"run it by hand: {' '.join(command)}",
        )
    return done.stdout
