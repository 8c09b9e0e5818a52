"""The image is built twice, and its processes start in it."""

from __future__ import annotations

import json
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

from lab import cache
from lab.image import build
from tests.support import image
from tests.support.depth import DEEP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1024**2
LIMIT_BYTES = 85_000_000
pytestmark = [pytest.mark.image, pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> build.Built:
    """The image of this run."""
    image.require_tools()
    return image.built(tmp_path_factory)


@pytest.fixture(scope="module")
def container(built: build.Built) -> Iterator[str]:
    """A container of the image, not yet running anything."""
    name = subprocess.run(["buildah", "from", build.name()], capture_output=True, text=True, check=True).stdout.strip()
    yield name
    subprocess.run(["buildah", "rm", name], capture_output=True, check=True)


def run(container: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the container, as the image's user."""
    arguments = ["buildah", "run", "--isolation=chroot", container, "--", *command]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)


def test_two_builds_of_one_commit_have_one_digest(
    built: build.Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody can check that an image was built from a commit; in a deep run the second one has a base of its own."""
    if DEEP:
        monkeypatch.setattr(cache, "folder", lambda: tmp_path)
    again = build.build(tmp_path / "again.tar")
    assert again.digest == built.digest


def test_the_image_is_small(built: build.Built) -> None:
    """A node pulls at most 85 MB, of which 8 are gRPC, for the device plugin."""
    assert built.compressed_bytes <= LIMIT_BYTES


def test_the_image_names_its_source(built: build.Built) -> None:
    """Labels name version and commit, and nothing runs as root."""
    with tarfile.open(built.archive) as tar:
        manifest = build.read_json(tar, f"blobs/{built.digest.replace(':', '/')}")
        configuration = build.read_json(tar, f"blobs/{manifest['config']['digest'].replace(':', '/')}")["config"]
    labels = configuration["Labels"]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    assert labels["org.opencontainers.image.version"] == build.version()
    assert labels["org.opencontainers.image.revision"].removesuffix("-dirty") == commit
    assert configuration["User"] == "65532:65532"


@pytest.mark.parametrize("module", ["webhook", "scheduler", "agent", "certs", "cli"])
def test_every_process_starts(container: str, module: str) -> None:
    """Each command of the manifests works in the image, with all its libraries."""
    done = run(container, "python3", "-m", module, "--help")
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout


def test_the_bill_of_materials_lists_python_and_debian_packages(container: str) -> None:
    """A scanner finds the packages of both kinds in the image itself."""
    done = run(container, "python3", "-c", "print(open('/opt/tranche/sbom.cdx.json').read())")
    names = {each["purl"].partition("@")[0] for each in json.loads(done.stdout)["components"]}
    assert {"pkg:pypi/numpy", "pkg:deb/debian/libc6"} <= names


def test_there_is_no_shell(container: str) -> None:
    """An intruder finds no shell and no package manager of Python."""
    assert run(container, "/bin/sh", "-c", "true").returncode != 0
    assert run(container, "python3", "-m", "pip", "--version").returncode != 0
